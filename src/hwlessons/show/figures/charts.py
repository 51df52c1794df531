"""Charts of single quantities: lines over a sweep, and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator

from hwlessons.show.figures.canvas import FigureView, Scale, canvas, name_axes
from hwlessons.show.figures.parts import Series, Values, lying_bars, mark_levels, named_series, view_of
from hwlessons.show.figures.style import HEIGHT_INCHES, INK, marks_for, tick_text

MOST_TICKS = 8


def line(
    x: Values,
    series: Series | Values,
    *,
    title: str,
    x_label: str,
    y_label: str,
    kind: str,
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
    levels: Mapping[str, float] | None = None,
    on: Mapping[str, Any] | None = None,
) -> FigureView:
    """Shows how one or several quantities change over a sweep.

    Args:
        x: where the sweep was taken.
        series: the values, or a mapping from label to values.
        levels: label and height of horizontal lines, such as a device's memory.

    The other arguments and the errors are those of `figure`; a length that differs from x's is an error, too.
    """
    named = named_series(series, len(x))
    with canvas(title, kind=kind, height_inches=HEIGHT_INCHES, on=on) as frame:
        axes = frame.axes
        name_axes(axes, x_label, y_label, x_scale, y_scale)
        for mark, (label, values) in zip(marks_for(list(named)), named.items(), strict=True):
            axes.plot(x, values, color=mark.colour, marker=mark.marker, linestyle=mark.dash, label=label)
        mark_levels(axes, levels)  # first, so that the axis reaches them
        if y_scale == "linear":
            lowest = min(min(values) for values in named.values())
            axes.set_ylim(bottom=min(0, 1.05 * lowest))  # with room for a marker
        if x_scale == "log2" and len(x) <= MOST_TICKS:
            axes.xaxis.set_major_locator(FixedLocator([float(value) for value in x]))
    return view_of(frame)


def bars(
    categories: Sequence[str],
    series: Series | Values,
    *,
    title: str,
    value_label: str,
    kind: str,
    value_scale: Scale = "linear",
    on: Mapping[str, Any] | None = None,
) -> FigureView:
    """Shows one bar per category, from top to bottom, with its value; for several series, groups of bars.

    Args:
        categories: what is compared.
        series: the values, or a mapping from label to values.
        value_label: quantity and unit.

    The other arguments and the errors are those of `figure`.
    """
    named = named_series(series, len(categories))
    thickness = 0.8 / len(named)
    rows = len(categories) * (1 + 0.5 * (len(named) - 1))
    with lying_bars(categories, title, value_label, kind, value_scale, rows, on) as frame:
        middle = np.arange(len(categories))
        for position, (mark, (label, values)) in enumerate(zip(marks_for(list(named)), named.items(), strict=True)):
            drawn = frame.axes.barh(
                middle + (position - (len(named) - 1) / 2) * thickness,
                values,
                thickness,
                color=mark.colour,
                edgecolor=INK,
                hatch=mark.hatch if len(named) > 1 else "",
                label=label,
            )
            frame.axes.bar_label(drawn, [tick_text(float(f"{value:.3g}")) for value in values], padding=3, fontsize=9)
        frame.axes.margins(x=0.14)
    return view_of(frame)
