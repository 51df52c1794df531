"""What the charts share: checked series, bars that lie, levels across the axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hwlessons.show.figures.canvas import Canvas, FigureView, Scale, canvas, check_label, set_scales
from hwlessons.show.figures.describe import LEVEL, remember, short
from hwlessons.show.figures.style import INK, tick_text

Values = Sequence[float]
Series = Mapping[str, Values]


def mark_levels(axes: Axes, levels: Mapping[str, float] | None, *, upright: bool = False) -> None:
    """Draws labelled dashed lines across the axes at given values."""
    for label, value in (levels or {}).items():
        draw, write = (
            (axes.axvline, axes.get_xaxis_transform()) if upright else (axes.axhline, axes.get_yaxis_transform())
        )
        drawn = draw(value, color=INK, linestyle=(0, (4, 3)), linewidth=1, gid=LEVEL)
        remember(drawn, f"{label} at {tick_text(short(value))}")
        if upright:
            axes.text(value, 1.01, label, transform=write, ha="center", va="bottom", fontsize=9)
        else:
            axes.text(0.015, value, label, transform=write, ha="left", va="bottom", fontsize=9)


@contextmanager
def lying_bars(
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
        frame.legend_adds_height = True
        set_scales(axes, scale, "linear")
        axes.set_xlabel(label)
        axes.set_yticks(range(len(categories)), list(categories))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        yield frame


def view_of(frame: Canvas) -> FigureView:
    assert frame.view is not None
    return frame.view


def named_series(series: Series | Values, length: int, *, stacked: bool = False) -> dict[str, Values]:
    named = {k.replace("_", " "): v for k, v in series.items()} if isinstance(series, Mapping) else {"": series}
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
