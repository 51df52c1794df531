"""A pipeline schedule as its viewer writes it; its JavaScript writes the same, and tests compare the two."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Any

from hwlessons.formulas.pipeline_orders import check_pipeline
from hwlessons.formulas.pipeline_schedules import Action, PipelineSchedule, pipeline_schedule

NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B"}
COUNTS: dict[str, dict[str, Any]] = {
    "num_stages": {"min": 1, "max": 8, "label": "Stages p"},
    "num_microbatches": {"min": 1, "max": 16, "label": "Microbatches m"},
    "num_chunks": {"min": 1, "max": 4, "label": "Chunks per stage v"},
}
RATIO = {"min": 0.25, "max": 4}
COLUMNS = ("stage", "holds at most (microbatches)", "order of its work")
_CHUNKS = "abcd"


def played(state: Mapping[str, Any]) -> PipelineSchedule:
    """The schedule that a state describes.

    Raises:
        ValueError: for an unknown schedule, or a count or ratio outside what the viewer draws or the schedule can run.
    """
    counts = [state[name] for name in COUNTS]
    check_pipeline(state["schedule"], *counts)
    for (name, limits), value in zip(COUNTS.items(), counts, strict=True):
        if value > limits["max"]:
            raise ValueError(f"{name} must be at most {limits['max']} to be drawn, got {value}")
    return pipeline_schedule(state["schedule"], *counts, backward_ratio=_ratio(state["backward_ratio"]))


def _ratio(value: object) -> Fraction:
    known = isinstance(value, int | float) and not isinstance(value, bool) and RATIO["min"] <= value <= RATIO["max"]
    ratio = Fraction(str(value)) if known else Fraction(0)
    if not ratio or (100 * ratio).denominator != 1:
        raise ValueError(
            f"backward_ratio must be from {RATIO['min']} to {RATIO['max']} with at most two decimals, got {value!r}"
        )
    return ratio


def write_fraction(value: Fraction) -> str:
    """At most two decimals, a half upwards: "28.5", "3.67", "12"."""
    whole, hundredths = divmod(floor(100 * value + Fraction(1, 2)), 100)
    return f"{whole}.{hundredths:02d}".rstrip("0").rstrip(".")


def task_name(action: Action, num_chunks: int) -> str:
    """F or B, the microbatch, and where there are several the chunk as a letter: "B12", "F3b"."""
    return f"{action.kind}{action.microbatch}{_CHUNKS[action.chunk] if num_chunks > 1 else ''}"


def facts(schedule: PipelineSchedule) -> dict[str, str]:
    """What the viewer says about the whole pipeline: times in forwards of one microbatch through a stage."""
    return {
        "whole step": write_fraction(schedule.total_time),
        "work of each stage": write_fraction(schedule.ideal_time),
        "bubble": write_fraction(schedule.total_time - schedule.ideal_time),
        "share of the total": f"{write_fraction(100 * schedule.bubble_over_total_fraction)} %",
        "over the ideal": f"{write_fraction(100 * schedule.bubble_over_ideal_fraction)} %",
    }


def summary(schedule: PipelineSchedule) -> str:
    """The schedule and its bubble, named both ways."""
    stages = f"{schedule.num_stages} stage{'' if schedule.num_stages == 1 else 's'}"
    chunks = f" of {schedule.num_chunks} chunks" if schedule.num_chunks > 1 else ""
    microbatches = f"{schedule.num_microbatches} microbatch{'' if schedule.num_microbatches == 1 else 'es'}"
    said = facts(schedule)
    return (
        f"{NAMES[schedule.schedule]}, {stages}{chunks}, {microbatches}: each stage waits {said['bubble']} of"
        f" {said['whole step']} forward times. Bubble: {said['share of the total']} share of the total,"
        f" {said['over the ideal']} over the ideal."
    )


def rows(schedule: PipelineSchedule) -> list[tuple[str, str, str]]:
    """For every stage: its name, what it holds at most, what it does in order."""
    return [_row(schedule, stage) for stage in range(schedule.num_stages)]


def _row(schedule: PipelineSchedule, stage: int) -> tuple[str, str, str]:
    stashed, chunks = schedule.num_stashed(stage), schedule.num_chunks
    held = write_fraction(Fraction(stashed, chunks)) + (f" ({stashed} chunks)" if chunks > 1 else "")
    return f"stage {stage}", held, " ".join(task_name(action, chunks) for action in schedule.of_stage(stage))
