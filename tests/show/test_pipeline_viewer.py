"""The pipeline-schedule viewer: its state in Python, and its JavaScript beside `formulas.pipeline_schedules`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
import quickjs

from hwlessons import show
from hwlessons.show.widgets import pipeline_as_text as text
from hwlessons.show.widgets.scripts import PIPELINE_SCHEDULE_VIEWER

START = {"schedule": "1f1b", "num_stages": 4, "num_microbatches": 8, "num_chunks": 1, "backward_ratio": 2}
GLUE = """
function everything(text) {
  const state = JSON.parse(text);
  const problem = scheduleProblem(state);
  if (problem) return JSON.stringify({ problem });
  const played = playSchedule(state);
  const facts = scheduleFacts(state, played);
  const actions = played.stages.map((all) => all.map((a) => [a.kind, a.chunk, a.microbatch, a.start, a.end]));
  return JSON.stringify({ actions, facts, summary: scheduleSummary(state, facts), rows: scheduleRows(state, played) });
}
"""
Call = Callable[[Any], dict[str, Any]]


def load(source: str) -> Call:
    context = quickjs.Context()
    context.eval(source + GLUE)
    call = context.get("everything")
    return lambda state: json.loads(call(json.dumps(state)))


@pytest.fixture(scope="module")
def js() -> Call:
    return load(PIPELINE_SCHEDULE_VIEWER.source)


def states(ratio: float) -> list[dict[str, Any]]:
    """Every state with a ratio that the viewer can draw."""
    counts = product(range(1, 9), range(1, 17), range(1, 5))
    some = [(s, p, m, v) for p, m, v in counts for s in (("gpipe", "1f1b") if v == 1 else ("interleaved",))]
    allowed = [one for one in some if one[0] != "interleaved" or one[2] % one[1] == 0]
    return [dict(zip(START, (*one, ratio), strict=True)) for one in allowed]


def differences(js: Call, state: dict[str, Any]) -> list[str]:
    schedule = text.played(state)
    scale = 100 * schedule.num_chunks
    actions = [
        [[a.kind, a.chunk, a.microbatch, a.start * scale, a.end * scale] for a in schedule.of_stage(stage)]
        for stage in range(schedule.num_stages)
    ]
    wanted = {
        "actions": actions,
        "facts": text.facts(schedule),
        "summary": text.summary(schedule),
        "rows": [list(row) for row in text.rows(schedule)],
    }
    found = js(state)
    return [f"{name} of {state}: {found.get(name)}" for name, value in wanted.items() if found.get(name) != value]


@pytest.mark.parametrize("ratio", [2, 1, 0.25, 1.37, 4])
def test_every_schedule_is_as_in_python(js: Call, ratio: float) -> None:
    all_states = states(ratio)
    assert len(all_states) == 2 * 8 * 16 + 3 * sum(16 // p for p in range(1, 9))
    found = [line for state in all_states for line in differences(js, state)]
    assert not found, f"{len(found)}: {found[:3]}"


MUTANTS = {
    "1F1B warms up one too many": ("Math.min(left, m)", "Math.min(left + 1, m)"),
    "interleaved warms up as 1F1B": ("2 * left + (v - 1) * p", "left + (v - 1) * p"),
    "backward from the first chunk": ("chunk : v - 1 - chunk", "chunk : chunk"),
    "a backward waits for nothing": ("part < last ?", "part < 0 ?"),
    "a stage does two things at once": ("Math.max(from, stages[stage].free)", "from"),
    "the bubble over the total twice": ("writeFraction(100 * bubble, work)", "writeFraction(100 * bubble, total)"),
    "what is held is never let go": ('held += kind === "F" ? 1 : -1', "held += 1"),
    "halves rounded down": ("200 * numerator + denominator", "200 * numerator"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_planted_error_is_found(old: str, new: str) -> None:
    source = PIPELINE_SCHEDULE_VIEWER.source
    assert source.count(old) == 1
    broken = load(source.replace(old, new))
    assert any(differences(broken, state) for state in states(2) if state["num_stages"] in (3, 4))


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "schedule": ({"schedule": "zigzag"}, "schedule must be one of gpipe, 1f1b, interleaved, got", "Unknown"),
    "no stages": ({"num_stages": 0}, "num_stages must be an integer of at least 1, got 0", "Stages p must be a whole"),
    "too many stages": ({"num_stages": 9}, "num_stages must be at most 8 to be drawn, got 9", "from 1 to 8"),
    "no microbatch": ({"num_microbatches": 0}, "num_microbatches must be an integer of at least 1", "from 1 to 16"),
    "half a microbatch": ({"num_microbatches": 1.5}, "num_microbatches must be an integer", "from 1 to 16"),
    "nothing": ({"num_microbatches": None}, "num_microbatches must be an integer", "whole number from 1 to 16"),
    "too many microbatches": ({"num_microbatches": 17}, "num_microbatches must be at most 16", "from 1 to 16"),
    "chunks": ({"num_chunks": 2}, "num_chunks must be 1 for 1f1b", "Only interleaved splits"),
    "one chunk": ({"schedule": "interleaved"}, "num_chunks must be at least 2 for interleaved", "at least 2 chunks"),
    "no multiple": (
        {"schedule": "interleaved", "num_chunks": 2, "num_microbatches": 6},
        "num_microbatches must be a multiple of num_stages (4) for interleaved, got 6",
        "multiple of the 4 stages; 6 microbatches are none",
    ),
    "too many chunks": ({"schedule": "interleaved", "num_chunks": 5}, "num_chunks must be at most 4", "from 1 to 4"),
    "a slow backward": ({"backward_ratio": 4.01}, "backward_ratio must be from 0.25 to 4 with at", "from 0.25 to 4"),
    "no backward": ({"backward_ratio": 0}, "backward_ratio must be from 0.25 to 4 with at", "from 0.25 to 4"),
    "three decimals": ({"backward_ratio": 1.125}, "at most two decimals, got 1.125", "at most two decimals"),
    "four and a bit": ({"backward_ratio": 1.3700000001}, "two decimals, got 1.3700000001", "at most two decimals"),
    "a ratio as text": ({"backward_ratio": "2"}, "at most two decimals, got '2'", "at most two decimals"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "in_python", "in_javascript"), BAD.values(), ids=BAD)
def test_what_cannot_be_drawn_is_refused_on_both_sides(
    js: Call, change: dict[str, Any], in_python: str, in_javascript: str
) -> None:
    viewer = show.PipelineScheduleViewer()
    with pytest.raises(ValueError, match=re.escape(in_python)):
        viewer.state = {**START, **change}
    assert viewer.state == START
    problem = js({**START, **change})["problem"]
    assert in_javascript in problem["text"] and problem["at"] in START


def test_a_state_needs_all_its_entries(js: Call) -> None:
    viewer = show.PipelineScheduleViewer()
    with pytest.raises(ValueError, match="the state has no entries; it must have schedule, num_stages"):
        viewer.state = {}
    assert js(None)["problem"]["at"] == "schedule"


def test_it_begins_with_1f1b_and_its_properties_move_it() -> None:
    viewer = show.PipelineScheduleViewer()
    assert viewer.state == START and viewer.schedule == "1f1b"
    viewer.num_stages, viewer.num_microbatches, viewer.backward_ratio = 2, 3, 1.5
    assert repr(viewer) == "PipelineScheduleViewer('1f1b', 2, 3, 1, backward_ratio=1.5)"
    with pytest.raises(ValueError, match="at least 1, got 0"):
        viewer.num_stages = 0
    assert viewer.num_stages == 2


def test_interleaved_begins_with_two_chunks() -> None:
    assert show.PipelineScheduleViewer("interleaved").num_chunks == 2
    assert show.PipelineScheduleViewer("interleaved", 2, 4, 3).num_chunks == 3


def test_the_table_names_the_bubble_both_ways() -> None:
    data, _ = show.PipelineScheduleViewer("interleaved", 4, 8)._repr_mimebundle_()
    assert "15.79 % share of the total, 18.75 % over the ideal" in data["text/plain"]
    assert "5.5 (11 chunks)" in data["text/plain"] and "F0a F1a F2a F3a F0b" in data["text/html"]


@pytest.mark.parametrize(
    ("value", "written"), [(Fraction(57, 2), "28.5"), (Fraction(1, 8), "0.13"), (Fraction(100), "100"), (0, "0")]
)
def test_fractions_are_written(value: Fraction, written: str) -> None:
    assert text.write_fraction(Fraction(value)) == written
