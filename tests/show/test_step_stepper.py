"""The stepper: its state in Python, every moment of its script beside `step_timeline`, and what it weighs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import quickjs

from hwlessons import show
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.step_timeline import step_timeline
from hwlessons.show.widgets import step_moments as steps
from hwlessons.show.widgets.scripts import STEP_STEPPER, style

GLUE = """
function everything(text) {
  const state = JSON.parse(text);
  const problem = stepProblem(state);
  if (problem) return JSON.stringify({ problem });
  const shown = (moment) => [sentenceOf(moment, state), moment.total, moment.categories, stepRows(moment),
                             moment.microbatch, writeBytes(moment.total), moment.categories.map(writeBytes)];
  return JSON.stringify({ moments: momentsOf(state).map(shown), peak: stepChoice(state).peak });
}
"""
Call = Callable[[Any], dict[str, Any]]
CHOICES = list(product(steps.ACCUMULATION_STEPS, steps.PLANS))
RECIPES = {
    "none": {},
    "every block": {"checkpointing": True},
    "every 2 blocks": {"checkpointing": True, "blocks_per_segment": 2},
    "selective": {"checkpointing": True, "keep_matmuls": True},
}


def load(source: str) -> Call:
    context = quickjs.Context()
    context.eval(source + GLUE)
    call = context.get("everything")
    return lambda state: json.loads(call(json.dumps(state)))


@pytest.fixture(scope="module")
def js() -> Call:
    return load(STEP_STEPPER.source)


def recipe(accumulation_steps: int, plan: str) -> StepRecipe:
    return StepRecipe(8 // accumulation_steps, 128, accumulation_steps, **RECIPES[plan])


def differences(js: Call, accumulation_steps: int, plan: str) -> list[str]:
    found = js({"accumulation_steps": accumulation_steps, "plan": plan, "moment": 0})
    moments = steps.shown_moments(accumulation_steps, plan)
    width = len(steps.KINDS)
    wanted = [
        [
            steps.sentence(moment, accumulation_steps),
            moment.total_bytes,
            list(moment.category_bytes),
            [[layer, *moment.cells[row * width :][:width]] for row, layer in enumerate(steps.LAYERS)],
            moment.microbatch,
            steps.write_bytes(moment.total_bytes),
            [*map(steps.write_bytes, moment.category_bytes)],
        ]
        for moment in moments
    ]
    lines = [f"{one} instead of {other}" for one, other in zip(found["moments"], wanted, strict=False) if one != other]
    if len(found["moments"]) != len(wanted) or found["peak"] != steps.peak_moment(moments):
        lines.append(f"{len(found['moments'])} moments, peak {found['peak']}")
    return lines


@pytest.mark.parametrize(("accumulation_steps", "plan"), CHOICES)
def test_every_moment_is_as_in_python(js: Call, accumulation_steps: int, plan: str) -> None:
    found = differences(js, accumulation_steps, plan)
    assert not found, f"{len(found)}: {found[:2]}"


@pytest.mark.parametrize(("accumulation_steps", "plan"), CHOICES)
def test_what_is_shown_is_the_steps_timeline_and_its_peak_the_predicted_one(accumulation_steps: int, plan: str) -> None:
    shown = steps.shown_moments(accumulation_steps, plan)
    timeline = step_timeline(steps.SHAPE, recipe(accumulation_steps, plan))
    assert [moment.total_bytes for moment in shown] == [moment.total_bytes for moment in timeline]
    predicted = predict_step(steps.SHAPE, recipe(accumulation_steps, plan))
    at_peak = shown[steps.peak_moment(shown)]
    assert at_peak.total_bytes == predicted.peak_bytes == sum(at_peak.category_bytes)
    assert at_peak.category_bytes == tuple(predicted.at_peak[category] for category in steps.CATEGORIES)


MUTANTS = {
    "further microbatches begin anew": ("readGroup(n ? further : first, n)", "readGroup(first, n)"),
    "a change is forgotten": ("index += 2) now", "index += 4) now"),
    "columns mixed up": ("now.slice(2, 2 +", "now.slice(1, 1 +"),
    "layers mixed up": ("cells.slice(row * width, (row + 1)", "cells.slice((row + 1) * width, (row + 2)"),
    "the wrong unit": ("bytes / 1048576", "bytes / 1000000"),
    "microbatches from 0": ("${microbatch + 1} of", "${microbatch} of"),
}


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_planted_error_is_found(old: str, new: str) -> None:
    source = STEP_STEPPER.source
    assert source.count(old) == 1
    assert differences(load(source.replace(old, new)), 2, "every block")


def test_it_adds_little_to_its_page() -> None:
    """Compressed, as a server sends it: at most 60 kB, the style of all widgets included."""
    added = len(gzip.compress(STEP_STEPPER.classic.encode(), 6)) + len(gzip.compress(style().encode(), 6))
    assert added <= 60_000, added


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (0, "Microbatch 1 of 2, forward of the embedding; writes “token embedding”."),
        (20, "Microbatch 1 of 2, forward of block 1; writes “fused attention”."),
        (-1, "Optimizer step; its temporaries are largest."),
    ],
)
def test_moments_are_told(index: int, said: str) -> None:
    assert steps.sentence(steps.shown_moments(2, "every 2 blocks")[index], 2) == said


def test_recomputing_is_told() -> None:
    told = {steps.sentence(moment, 1) for moment in steps.shown_moments(1, "every 2 blocks")}
    assert "Microbatch 1 of 1, backward of blocks 2 to 3: the inside of block 3 is recomputed; writes “gelu”." in told
    told = {steps.sentence(moment, 1) for moment in steps.shown_moments(1, "every block")}
    assert "Microbatch 1 of 1, backward of block 2: its inside is recomputed; writes “gelu”." in told
    assert "Microbatch 1 of 1, backward of block 2; writes the gradient of “gelu”." in told
    assert not any("recomputed" in moment.where for moment in steps.shown_moments(1, "none"))


def test_it_begins_at_the_peak_and_its_properties_move_it() -> None:
    stepper = show.StepStepper()
    assert (stepper.accumulation_steps, stepper.plan) == (1, "every block")
    assert stepper.moment == steps.peak_moment(steps.shown_moments(1, "every block"))
    stepper.plan = "none"
    assert stepper.moment == steps.peak_moment(steps.shown_moments(1, "none"))
    stepper.accumulation_steps = 4
    stepper.moment = 3
    assert repr(stepper) == "StepStepper(4, 'none', moment=3)"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "three": ({"accumulation_steps": 3}, "accumulation_steps must be one of 1, 2, 4, got 3", "one of 1, 2, 4"),
    "a yes": ({"accumulation_steps": True}, "accumulation_steps must be one of 1, 2, 4, got True", "one of 1, 2, 4"),
    "plan": ({"plan": "all"}, "plan must be one of none, every block, every 2 blocks, sel", "Unknown plan all"),
    "no plan": ({"plan": ["all"]}, "plan must be one of none, every block, every 2 blocks, sel", "Unknown plan all"),
    "before": ({"moment": -1}, "moment must be an integer from 0 to 212, got -1", "from 0 to 212"),
    "beyond": ({"moment": 213}, "moment must be an integer from 0 to 212, got 213", "from 0 to 212"),
    "half": ({"moment": 1.5}, "moment must be an integer from 0 to 212, got 1.5", "whole number"),
}


@pytest.mark.parametrize(("change", "in_python", "in_javascript"), BAD.values(), ids=BAD)
def test_what_cannot_be_shown_is_refused_on_both_sides(
    js: Call, change: dict[str, Any], in_python: str, in_javascript: str
) -> None:
    stepper = show.StepStepper()
    before = stepper.state
    with pytest.raises(ValueError, match=re.escape(in_python)):
        stepper.state = {**before, **change}
    assert stepper.state == before
    problem = js({**before, **change})["problem"]
    assert in_javascript in problem["text"] and problem["at"] == next(iter(change))


@pytest.mark.parametrize(
    ("size", "text"), [(4, "4 B"), (8192, "8.00 KiB"), (102400, "0.10 MiB"), (2**20 + 5243, "1.01 MiB")]
)
def test_bytes_are_written(size: int, text: str) -> None:
    assert steps.write_bytes(size) == text


def test_the_table_says_what_is_alive() -> None:
    data, _ = show.StepStepper(1, "every block")._repr_mimebundle_()
    assert "gradients 10.54 MiB, saved activations 12.03 MiB" in data["text/plain"]
    assert "the step's peak is 71.12 MiB" in data["text/plain"]
