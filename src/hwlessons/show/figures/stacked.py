"""Charts of what a total is made of: stacked bars and stacked areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hwlessons.show.figures.canvas import FigureView, Scale, canvas, name_axes
from hwlessons.show.figures.describe import AREA, remember
from hwlessons.show.figures.parts import Series, Values, lying_bars, mark_levels, named_series, view_of
from hwlessons.show.figures.style import HEIGHT_INCHES, INK, marks_for, tick_text


def stacked_bars(
    categories: Sequence[str],
    series: Series,
    *,
    title: str,
    value_label: str,
    kind: str,
    levels: Mapping[str, float] | None = None,
    on: Mapping[str, Any] | None = None,
) -> FigureView:
    """Shows one bar per category, made of the series one after another, with its total.

    Args:
        categories: what is compared.
        series: a mapping from label to values, none negative.
        value_label: quantity and unit.
        levels: label and place of vertical lines, such as a device's memory.

    The other arguments and the errors are those of `figure`.
    """
    named = named_series(series, len(categories), stacked=True)
    with lying_bars(categories, title, value_label, kind, "linear", len(categories), on) as frame:
        start = np.zeros(len(categories))
        for mark, (label, values) in zip(marks_for(list(named)), named.items(), strict=True):
            drawn = frame.axes.barh(
                np.arange(len(categories)),
                values,
                0.66,
                start,
                color=mark.colour,
                edgecolor=INK,
                hatch=mark.hatch,
                label=label,
            )
            start = start + np.asarray(values, float)
        totals = [tick_text(float(f"{total:.3g}")) for total in start]
        frame.axes.bar_label(drawn, totals, padding=3, fontsize=9)
        frame.axes.margins(x=0.12)
        mark_levels(frame.axes, levels, upright=True)
        frame.summary = f"Totals: {', '.join(f'{a} {b}' for a, b in zip(categories, totals, strict=True))}."
    return view_of(frame)


def stacked_areas(
    x: Values,
    series: Series,
    *,
    title: str,
    x_label: str,
    y_label: str,
    kind: str,
    x_scale: Scale = "linear",
    levels: Mapping[str, float] | None = None,
    on: Mapping[str, Any] | None = None,
) -> FigureView:
    """Shows what a total is made of over a sweep; arguments and errors as in `line`, no value may be negative."""
    named = named_series(series, len(x), stacked=True)
    with canvas(title, kind=kind, height_inches=HEIGHT_INCHES, on=on) as frame:
        name_axes(frame.axes, x_label, y_label, x_scale)
        stack(frame.axes, x, named, step=False)
        frame.axes.margins(x=0)
        frame.axes.set_ylim(bottom=0)
        mark_levels(frame.axes, levels)
    return view_of(frame)


def stack(axes: Axes, x: Any, series: Mapping[str, Any], *, step: bool) -> None:
    """Draws areas on top of each other; series that are zero throughout are left out."""
    floor = np.zeros(len(x))
    for mark, (label, values) in zip(marks_for(list(series)), series.items(), strict=True):
        heights = np.asarray(values, float)
        if not heights.any():
            continue
        area = axes.fill_between(
            x, floor, floor + heights, step="post" if step else None, facecolor=mark.colour, edgecolor=INK,
            hatch=mark.hatch, linewidth=0.5, label=label, gid=AREA,
        )  # fmt: skip
        remember(area, (np.asarray(x, float), heights))
        floor = floor + heights
