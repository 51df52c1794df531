"""The charts that lessons need: lines over a sweep, bars, stacked bars, stacked areas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from hwlessons.show.figures.canvas import Canvas, FigureView, Scale, canvas, check_label, name_axes, set_scales
from hwlessons.show.figures.describe import AREA, LEVEL, remember
from hwlessons.show.figures.style import HEIGHT_INCHES, INK, mark_for, tick_text

Values = Sequence[float]
Series = Mapping[str, Values]
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
    named = _named(series, len(x))
    with canvas(title, kind=kind, height_inches=HEIGHT_INCHES, on=on) as frame:
        axes = frame.axes
        name_axes(axes, x_label, y_label, x_scale, y_scale)
        for position, (label, values) in enumerate(named.items()):
            mark = mark_for(label, position)
            axes.plot(x, values, color=mark.colour, marker=mark.marker, linestyle=mark.dash, label=label)
        if y_scale == "linear":
            axes.set_ylim(bottom=min(0, *(min(values) for values in named.values())))
        if x_scale == "log2" and len(x) <= MOST_TICKS:
            axes.xaxis.set_major_locator(FixedLocator([float(value) for value in x]))
        mark_levels(axes, levels)
    return _view(frame)


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
    named = _named(series, len(categories))
    thickness = 0.8 / len(named)
    rows = len(categories) * (1 + 0.5 * (len(named) - 1))
    with _lying(categories, title, value_label, kind, value_scale, rows, on) as frame:
        middle = np.arange(len(categories))
        for position, (label, values) in enumerate(named.items()):
            mark = mark_for(label, position)
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
    return _view(frame)


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
    named = _named(series, len(categories), stacked=True)
    with _lying(categories, title, value_label, kind, "linear", len(categories), on) as frame:
        start = np.zeros(len(categories))
        for position, (label, values) in enumerate(named.items()):
            mark = mark_for(label, position)
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
    return _view(frame)


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
    named = _named(series, len(x), stacked=True)
    with canvas(title, kind=kind, height_inches=HEIGHT_INCHES, on=on) as frame:
        name_axes(frame.axes, x_label, y_label, x_scale)
        stack(frame.axes, x, named, step=False)
        frame.axes.margins(x=0)
        frame.axes.set_ylim(bottom=0)
        mark_levels(frame.axes, levels)
    return _view(frame)


def stack(axes: Axes, x: Any, series: Mapping[str, Any], *, step: bool) -> None:
    """Draws areas on top of each other; series that are zero throughout are left out."""
    floor = np.zeros(len(x))
    for position, (label, values) in enumerate(series.items()):
        heights = np.asarray(values, float)
        if not heights.any():
            continue
        mark = mark_for(label, position)
        area = axes.fill_between(
            x, floor, floor + heights, step="post" if step else None, facecolor=mark.colour, edgecolor=INK,
            hatch=mark.hatch, linewidth=0.5, label=label.replace("_", " "), gid=AREA,
        )  # fmt: skip
        remember(area, (np.asarray(x, float), heights))
        floor = floor + heights


def mark_levels(axes: Axes, levels: Mapping[str, float] | None, *, upright: bool = False) -> None:
    """Draws labelled dashed lines across the axes at given values."""
    for label, value in (levels or {}).items():
        draw, write = (
            (axes.axvline, axes.get_xaxis_transform()) if upright else (axes.axhline, axes.get_yaxis_transform())
        )
        drawn = draw(value, color=INK, linestyle=(0, (4, 3)), linewidth=1, gid=LEVEL)
        remember(drawn, f"{label} at {tick_text(value)}")
        if upright:
            axes.text(value, 1.01, label, transform=write, ha="center", va="bottom", fontsize=9)
        else:
            axes.text(0.99, value, label, transform=write, ha="right", va="bottom", fontsize=9)


@contextmanager
def _lying(
    categories: Sequence[str],
    title: str,
    label: str,
    kind: str,
    scale: Scale,
    rows: float,
    on: Mapping[str, Any] | None,
) -> Iterator[Canvas]:
    """A canvas for bars that lie, one category under the other."""
    check_label("value_label", label)
    with canvas(title, kind=kind, height_inches=0.7 + 0.34 * rows, on=on) as frame:
        axes = frame.axes
        set_scales(axes, scale, "linear")
        axes.set_xlabel(label)
        axes.set_yticks(range(len(categories)), list(categories))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        yield frame


def _view(frame: Canvas) -> FigureView:
    assert frame.view is not None
    return frame.view


def _named(series: Series | Values, length: int, *, stacked: bool = False) -> dict[str, Values]:
    named = dict(series) if isinstance(series, Mapping) else {"": series}
    if not named or length == 0:
        raise ValueError("there is nothing to plot; give at least one series of at least one value")
    for label, values in named.items():
        if len(values) != length:
            raise ValueError(f"series {label!r} has {len(values)} values, {length} are needed")
        if not np.isfinite(np.asarray(values, float)).all():
            raise ValueError(f"series {label!r} holds a value that is not finite; leave it out and say so")
        if stacked and min(values) < 0:
            raise ValueError(f"series {label!r} holds {min(values)}; what is stacked must not be negative")
    return named
