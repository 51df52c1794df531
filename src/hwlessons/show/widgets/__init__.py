"""Widgets: drawn by the same JavaScript in JupyterLab and on a built page, over a plain table for everyone else."""

from hwlessons.show.widgets.explorer import NumberFormatExplorer
from hwlessons.show.widgets.widget import Widget

__all__ = ["NumberFormatExplorer", "Widget"]
