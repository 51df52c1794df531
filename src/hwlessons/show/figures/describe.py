"""What a figure shows, in words made from the plotted artists: for screen readers, terminals and logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D

from hwlessons.show.figures.style import tick_text

MOST_POINTS = 12
LEVEL = "hwl-level"
AREA = "hwl-area"
NOT_DATA = "hwl-not-data"

_REMEMBERED: WeakKeyDictionary[Artist, Any] = WeakKeyDictionary()


def remember(artist: Artist, data: Any) -> None:
    """Keeps what an artist shows where its outline does not say: an area's heights, a level's name."""
    _REMEMBERED[artist] = data


def describe(axes: Axes, title: str, summary: str = "") -> str:
    """A description of at most a few sentences: the kind of chart, its axes, and each series with its values.

    Raises:
        ValueError: if nothing was plotted, a series of several has no label, or something else than lines, points,
            bars and areas was plotted.
    """
    parts = [*_bars(axes), *_areas(axes), *_lines(axes), *_points(axes)]
    if axes.images or not parts:
        raise ValueError(
            f"figure {title!r} has nothing that can be put in words; give alt=... or plot lines, points or bars"
        )
    return " ".join(filter(None, [f"{title}.", _axes(axes), *parts, *_levels(axes), summary]))


def _axes(axes: Axes) -> str:
    bars = _bar_containers(axes)
    flat = bool(bars) and _is_flat(bars[0])
    across, up = axes.get_xlabel(), axes.get_ylabel()
    if bars:
        return f"Bar chart of {across if flat else up}" + (f" by {up if flat else across}." if (up and across) else ".")
    scales = [f" ({axis.get_scale()} scale)" if axis.get_scale() == "log" else "" for axis in (axes.xaxis, axes.yaxis)]
    return f"{up}{scales[1]} against {across}{scales[0]}."


def _bar_containers(axes: Axes) -> list[BarContainer]:
    return [container for container in axes.containers if isinstance(container, BarContainer)]


def _is_flat(container: BarContainer) -> bool:
    return container.orientation == "horizontal"


def _bars(axes: Axes) -> list[str]:
    containers = _bar_containers(axes)
    sentences = []
    for container in containers:
        flat = _is_flat(container)
        ticks = axes.get_yticklabels() if flat else axes.get_xticklabels()
        names = [tick.get_text() for tick in ticks]
        sizes = [patch.get_width() if flat else patch.get_height() for patch in container.patches]
        values = [f"{name} {tick_text(short(size))}" for name, size in zip(names, sizes, strict=False)]
        sentences.append(_sentence(container.get_label(), values, len(containers)))
    return sentences


def _lines(axes: Axes) -> list[str]:
    lines = [line for line in axes.lines if line.get_gid() not in (LEVEL, NOT_DATA)]
    return [_series(line.get_label(), *_data(line), len(lines)) for line in lines]


def _data(line: Line2D) -> tuple[Any, Any]:
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def _points(axes: Axes) -> list[str]:
    clouds = [found for found in axes.collections if isinstance(found, PathCollection) and found.get_gid() != NOT_DATA]
    offsets = [np.asarray(cloud.get_offsets(), float) for cloud in clouds]
    return [
        _series(cloud.get_label(), points[:, 0], points[:, 1], len(clouds))
        for cloud, points in zip(clouds, offsets, strict=True)
    ]


def _areas(axes: Axes) -> list[str]:
    """Stacked areas carry their own heights, which the drawn outline does not show."""
    areas = [found for found in axes.collections if isinstance(found, PolyCollection) and found.get_gid() == AREA]
    kept = [(area.get_label(), _REMEMBERED[area]) for area in areas]
    return [_series(label, x, heights, len(areas)) for label, (x, heights) in kept]


def _levels(axes: Axes) -> list[str]:
    return [f"Marked: {_REMEMBERED[line]}." for line in axes.lines if line.get_gid() == LEVEL]


def _series(label: Any, x: Any, y: Any, num_series: int) -> str:
    if len(x) <= MOST_POINTS:
        values = [f"{tick_text(short(b))} at {tick_text(short(a))}" for a, b in zip(x, y, strict=True)]
        return _sentence(label, values, num_series)
    low, high = int(np.nanargmin(y)), int(np.nanargmax(y))
    ends = [
        f"{len(x):,} points",
        f"from {tick_text(short(y[0]))} to {tick_text(short(y[-1]))}",
        f"lowest {tick_text(short(y[low]))} at {tick_text(short(x[low]))}",
        f"highest {tick_text(short(y[high]))} at {tick_text(short(x[high]))}",
    ]
    return _sentence(label, ends, num_series)


def _sentence(label: Any, values: Sequence[str], num_series: int) -> str:
    named = str(label or "").strip()
    if named.startswith("_"):
        named = ""
    if num_series > 1 and not named:
        raise ValueError("a figure with several series needs a label for each; give label=...")
    return f"{named}: {', '.join(values)}." if named else f"Values: {', '.join(values)}."


def short(value: float) -> float:
    """Three significant digits; a whole number below a million stays what it is, 1,024 for instance."""
    whole = float(value).is_integer() and abs(value) < 1e6
    return float(value) if whole else float(f"{value:.3g}")
