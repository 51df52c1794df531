"""Figures: one look, readable in light and dark and without colour, with a description made from what is plotted."""

from hwlessons.show.figures.canvas import FigureView, figure
from hwlessons.show.figures.charts import bars, line
from hwlessons.show.figures.stacked import stacked_areas, stacked_bars
from hwlessons.show.figures.timeline import memory_timeline

__all__ = ["FigureView", "bars", "figure", "line", "memory_timeline", "stacked_areas", "stacked_bars"]
