"""Pipeline schedules in time: when each stage works, how long it waits (the bubble), and what it holds meanwhile.

This is a simulator that counts; nothing is sent. Sending takes no time, all stages are equally fast, and a backward is
one piece of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from hwlessons.formulas.pipeline_orders import Schedule, Task, check_pipeline, stage_order


@dataclass(frozen=True)
class Action:
    """One forward or backward on a stage; times are in forwards of one microbatch through one whole stage."""

    stage: int
    chunk: int
    microbatch: int
    kind: str
    start: Fraction
    end: Fraction


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule, played.

    Attributes:
        schedule: "gpipe", "1f1b" or "interleaved".
        num_stages, num_microbatches, num_chunks: p, m and v.
        backward_ratio: duration of a backward over that of a forward.
        actions: all work, by stage and then by time.
    """

    schedule: Schedule
    num_stages: int
    num_microbatches: int
    num_chunks: int
    backward_ratio: Fraction
    actions: tuple[Action, ...]

    @property
    def total_time(self) -> Fraction:
        """From the first forward to the last backward."""
        return max(action.end for action in self.actions)

    @property
    def ideal_time(self) -> Fraction:
        """What a stage works: m (forward + backward)."""
        return self.num_microbatches * (1 + self.backward_ratio)

    @property
    def bubble_over_ideal_fraction(self) -> Fraction:
        """Waiting time of a stage over its working time."""
        return self.total_time / self.ideal_time - 1

    @property
    def bubble_over_total_fraction(self) -> Fraction:
        """Waiting time of a stage over the whole time."""
        return 1 - self.ideal_time / self.total_time

    def of_stage(self, stage: int) -> tuple[Action, ...]:
        """What one stage does, in order."""
        return tuple(action for action in self.actions if action.stage == stage)

    def num_stashed(self, stage: int) -> int:
        """The most (microbatch, chunk) pairs that a stage has run forward and not yet backward."""
        return max(accumulate(1 if action.kind == "F" else -1 for action in self.of_stage(stage)))

    def activation_bytes(self, stage: int, bytes_per_microbatch: int) -> Fraction:
        """The most activation bytes that a stage holds.

        Args:
            stage: from 0 to num_stages - 1.
            bytes_per_microbatch: what one microbatch keeps for backward in the whole stage; a chunk keeps 1/v of it.
        """
        return self.num_stashed(stage) * Fraction(bytes_per_microbatch, self.num_chunks)


def pipeline_schedule(
    schedule: Schedule,
    num_stages: int,
    num_microbatches: int,
    num_chunks: int = 1,
    *,
    backward_ratio: Fraction | int = 2,
) -> PipelineSchedule:
    """Plays a schedule: every stage runs its tasks in its own order, each as soon as its input is there.

    A forward waits for the same microbatch's forward one part of the model earlier, a backward for the backward one
    part later, and the last part's backward for its own forward. Parts go round the stages: part c p + s is chunk c of
    stage s.

    Args:
        schedule: "gpipe", "1f1b" or "interleaved".
        num_stages: p.
        num_microbatches: m; for interleaved a multiple of p.
        num_chunks: v; at least 2 for interleaved, else 1.
        backward_ratio: duration of a backward over that of a forward, above 0.

    Raises:
        ValueError: for an unknown schedule, a count below 1, a ratio not above 0, or counts that the schedule cannot
            run.
    """
    check_pipeline(schedule, num_stages, num_microbatches, num_chunks)
    if isinstance(backward_ratio, bool) or not isinstance(backward_ratio, int | Fraction) or backward_ratio <= 0:
        raise ValueError(f"backward_ratio must be an integer or a Fraction above 0, got {backward_ratio!r}")
    ratio = Fraction(backward_ratio)
    orders = [stage_order(schedule, s, num_stages, num_microbatches, num_chunks) for s in range(num_stages)]
    actions = _play(orders, num_stages * num_chunks - 1, {"F": Fraction(1, num_chunks), "B": ratio / num_chunks})
    return PipelineSchedule(schedule, num_stages, num_microbatches, num_chunks, ratio, actions)


def _play(orders: Sequence[Sequence[Task]], last: int, duration: dict[str, Fraction]) -> tuple[Action, ...]:
    ends: dict[tuple[str, int, int], Fraction] = {}
    rows: list[list[Action]] = [[] for _ in orders]
    moved = True
    while moved:
        moved = False
        for stage, (order, row) in enumerate(zip(orders, rows, strict=True)):
            while len(row) < len(order):
                kind, chunk, microbatch = order[len(row)]
                part = chunk * len(orders) + stage
                ready = _ready(ends, kind, part, microbatch, last)
                if ready is None:
                    break
                start = max(ready, row[-1].end if row else Fraction(0))
                end = ends[kind, part, microbatch] = start + duration[kind]
                row.append(Action(stage, chunk, microbatch, kind, start, end))
                moved = True
    assert all(len(row) == len(order) for order, row in zip(orders, rows, strict=True)), "the stages wait in a circle"
    return tuple(action for row in rows for action in row)


def _ready(
    ends: dict[tuple[str, int, int], Fraction], kind: str, part: int, microbatch: int, last: int
) -> Fraction | None:
    """When a task's input is there; None if it is not yet known."""
    if kind == "F":
        return ends.get(("F", part - 1, microbatch)) if part else Fraction(0)
    return ends.get(("B", part + 1, microbatch) if part < last else ("F", part, microbatch))


def bubble_over_ideal_fraction(num_stages: int, num_microbatches: int, num_chunks: int = 1) -> Fraction:
    """(p - 1) / (v m): waiting over working time, for GPipe and 1F1B with v = 1.

    Source: Narayanan et al., 2021, arXiv:2104.04473, section 2.2.

    Raises:
        ValueError: for a count below 1, or v above 1 with m no multiple of p.
    """
    check_pipeline("1f1b" if num_chunks == 1 else "interleaved", num_stages, num_microbatches, num_chunks)
    return Fraction(num_stages - 1, num_chunks * num_microbatches)


def bubble_over_total_fraction(num_stages: int, num_microbatches: int, num_chunks: int = 1) -> Fraction:
    """(p - 1) / (v m + p - 1): the same waiting time over the whole time; arguments as `bubble_over_ideal_fraction`."""
    over_ideal = bubble_over_ideal_fraction(num_stages, num_microbatches, num_chunks)
    return over_ideal / (1 + over_ideal)
