"""Memory over time: what is alive after every operator, by category, with the peak marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes

from hwlessons.show.figures.canvas import FigureView, canvas, name_axes
from hwlessons.show.figures.describe import NOT_DATA
from hwlessons.show.figures.parts import mark_levels, view_of
from hwlessons.show.figures.stacked import stack
from hwlessons.show.figures.style import HEIGHT_INCHES, INK
from hwlessons.units import GIB, KIB, MIB, format_bytes

NUM_SLICES = 150
PLOT_POINTS = 300
"""About how wide the plot itself is, in points: for words that must fit."""


class Timeline(Protocol):
    """What `lab.memory.track(...).timeline` offers: columns with one entry per operator."""

    @property
    def phases(self) -> Sequence[str]:
        """The phase of each operator."""
        ...

    @property
    def steps(self) -> Sequence[int]:
        """The step of each operator, 0 for the build."""
        ...

    @property
    def category_bytes(self) -> Mapping[str, Sequence[int]]:
        """Live bytes after each operator, by category."""
        ...


def memory_timeline(
    timeline: Timeline,
    *,
    title: str,
    kind: str,
    levels: Mapping[str, float] | None = None,
    on: Mapping[str, Any] | None = None,
) -> FigureView:
    """Shows live memory by category through build and steps, marks the peak, and names the phases.

    Long timelines are drawn in NUM_SLICES slices; each shows the moment at which it holds most, so no peak is lost.

    Args:
        timeline: `StepMemory.timeline`.
        title: what the figure shows.
        kind: "traced" or "measured".
        levels: label and bytes of limits, such as a device's memory.
        on: the machine's facts, for recorded numbers; by default the registered machine.

    Raises:
        ValueError: if the timeline is empty or an argument is not one of those allowed.
    """
    num_operators = len(timeline.phases)
    if num_operators == 0:
        raise ValueError("the timeline is empty; it has one entry per operator")
    columns = {name.replace("_", " "): np.asarray(values, np.int64) for name, values in timeline.category_bytes.items()}
    totals = np.sum(list(columns.values()), axis=0)
    peak = int(np.argmax(totals))
    divisor, unit = _unit(int(totals[peak]))
    limits = {label: num_bytes / divisor for label, num_bytes in (levels or {}).items()}
    starts, moments = _slices(totals)
    with canvas(title, kind=kind, height_inches=HEIGHT_INCHES * 1.15, on=on) as frame:
        axes = frame.axes
        name_axes(axes, "operators run since the start (count)", f"live memory ({unit})")
        drawn = {name: np.append(values[moments], values[-1]) / divisor for name, values in columns.items()}
        stack(axes, np.append(starts, num_operators), drawn, step=True)
        axes.margins(x=0)
        axes.set_ylim(0, max(1.22 * totals[peak] / divisor, *(1.1 * limit for limit in limits.values()), 0))
        _mark_phases(axes, timeline)
        peak_text = f"peak {format_bytes(int(totals[peak]))} in {timeline.phases[peak]}"
        _mark_peak(axes, peak, totals[peak] / divisor, peak_text, num_operators)
        mark_levels(axes, limits)
        parts = [f"{name} {format_bytes(int(v[peak]))}" for name, v in columns.items() if v[peak]]
        phases = ", ".join(name for name, _ in groupby(timeline.phases))
        words = [f"{title}. Live memory by category against operators run.", f"Phases: {phases}."]
        marked = [f"Marked: {label}, {format_bytes(num_bytes)}." for label, num_bytes in (levels or {}).items()]
        frame.alt = " ".join([*words, f"P{peak_text[1:]}: {', '.join(parts)}.", *marked])
    return view_of(frame)


def _unit(num_bytes: int) -> tuple[int, str]:
    """The binary unit for an axis that reaches this many bytes."""
    units = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
    return next(((factor, unit) for factor, unit in units if num_bytes >= factor), (1, "B"))


def _slices(totals: Any) -> tuple[Any, Any]:
    """Where each slice starts, and the moment within it that holds most."""
    starts = np.unique(np.linspace(0, len(totals), NUM_SLICES, endpoint=False).astype(int))
    pieces = np.split(totals, starts[1:])
    return starts, np.array([start + int(np.argmax(piece)) for start, piece in zip(starts, pieces, strict=True)])


def _spans(names: Sequence[Any]) -> Iterator[tuple[Any, int, int]]:
    """Runs of equal names: the name, where the run starts and where it ends."""
    start = 0
    for name, run in groupby(names):
        end = start + len(list(run))
        yield name, start, end
        start = end


def _mark_phases(axes: Axes, timeline: Timeline) -> None:
    """Writes the phases above the plot (upright where they are short) and the steps above them."""
    points_each = PLOT_POINTS / len(timeline.phases)
    by_phase = [span for span in _spans(timeline.phases) if span[0] != "build"]
    by_step = [(f"step {step}" if step else "build", start, end) for step, start, end in _spans(timeline.steps)]
    upright = any(9 < (end - start) * points_each <= 4.7 * len(name) for name, start, end in by_phase)
    for row, spans in enumerate((by_phase, by_step)):
        for name, start, end in spans:
            if start:
                axes.axvline(start, color=INK, linewidth=0.5 + 0.5 * row, alpha=0.5, gid=NOT_DATA)
            height = 1.01 + (0.21 if upright else 0.06) * row
            if _fits(name, start, end, points_each):
                _above(
                    axes, (start + end) / 2, height, name, ha="center", va="bottom", fontweight=("normal", "bold")[row]
                )
            elif not row and (end - start) * points_each > 9:
                _above(axes, (start + end) / 2, height, name, rotation=90, rotation_mode="anchor", va="center")


def _fits(name: str, start: int, end: int, points_each: float) -> bool:
    """Whether a name can be written across its span."""
    return (end - start) * points_each > 4.7 * len(name)


def _above(axes: Axes, x: float, height: float, text: str, **options: Any) -> None:
    axes.text(x, height, text, transform=axes.get_xaxis_transform(), fontsize=8.5, **options)


def _mark_peak(axes: Axes, peak: int, height: float, text: str, num_operators: int) -> None:
    axes.plot([peak], [height], marker="v", markersize=7, color=INK, linestyle="", gid=NOT_DATA)
    to_the_left = peak > num_operators / 2
    axes.annotate(
        text, (peak, height), xytext=(-7 if to_the_left else 7, 4), textcoords="offset points",
        ha="right" if to_the_left else "left", va="bottom", fontsize=9, fontweight="bold",
    )  # fmt: skip
