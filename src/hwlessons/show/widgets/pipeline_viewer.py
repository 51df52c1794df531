"""The pipeline-schedule viewer: when each stage works, what it waits, what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hwlessons.formulas.pipeline_orders import Schedule
from hwlessons.show.html import Grid
from hwlessons.show.widgets import pipeline_as_text as text
from hwlessons.show.widgets.scripts import PIPELINE_SCHEDULE_VIEWER, Script
from hwlessons.show.widgets.widget import Widget

ENTRIES = ("schedule", *text.COUNTS, "backward_ratio")


def _entry(name: str, doc: str) -> property:
    def change(viewer: PipelineScheduleViewer, value: Any) -> None:
        viewer.state = {**viewer.state, name: value}

    return property(lambda viewer: viewer.state[name], change, doc=doc)


class PipelineScheduleViewer(Widget):
    """Draws a pipeline schedule in time, with its bubble both ways and what each stage holds.

    Leave it last in a cell to show it. In JupyterLab its properties follow the reader, and setting them moves it.

    Args:
        schedule: "gpipe", "1f1b" or "interleaved".
        num_stages: p, at most 8.
        num_microbatches: m, at most 16; for interleaved a multiple of p.
        num_chunks: v, parts of the model on each stage, at most 4; by default 2 for interleaved, else 1.
        backward_ratio: duration of a backward over that of a forward, from 0.25 to 4 with at most two decimals.

    Raises:
        ValueError: for an unknown schedule, or a count or ratio that is not allowed.
    """

    script: ClassVar[Script] = PIPELINE_SCHEDULE_VIEWER

    def __init__(
        self,
        schedule: Schedule = "1f1b",
        num_stages: int = 4,
        num_microbatches: int = 8,
        num_chunks: int | None = None,
        *,
        backward_ratio: float = 2,
    ) -> None:
        chunks = num_chunks if num_chunks is not None else 2 if schedule == "interleaved" else 1
        values = (schedule, num_stages, num_microbatches, chunks, backward_ratio)
        super().__init__(state=dict(zip(ENTRIES, values, strict=True)))

    schedule = _entry("schedule", "The schedule's name.")
    num_stages = _entry("num_stages", "Stages p.")
    num_microbatches = _entry("num_microbatches", "Microbatches m.")
    num_chunks = _entry("num_chunks", "Chunks per stage v.")
    backward_ratio = _entry("backward_ratio", "Duration of a backward over that of a forward.")

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """See `Widget.checked`."""
        if set(state) != set(ENTRIES):
            has = ", ".join(map(str, state)) or "no entries"
            raise ValueError(f"the state has {has}; it must have {', '.join(ENTRIES)}")
        text.played(state)
        return dict(state)

    def grid(self) -> tuple[Grid, str]:
        """See `Widget.grid`."""
        schedule = text.played(self.state)
        return Grid(text.COLUMNS, text.rows(schedule), [False, True, False]), f"{text.summary(schedule)} · simulated"

    def __repr__(self) -> str:
        values = [repr(self.state[name]) for name in ENTRIES]
        return f"PipelineScheduleViewer({', '.join(values[:-1])}, backward_ratio={values[-1]})"
