"""The stepper on a built page, used as a reader does: a scratch book, and every lesson that shows it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hwlessons.show.widgets import step_moments as steps

SITE = Path(os.environ.get("HWLESSONS_SITE", Path(__file__).resolve().parents[2] / "_build" / "html"))
ELEMENT = "hwl-step-stepper"
LESSONS = [
    path.relative_to(SITE).as_posix()
    for path in sorted(SITE.glob("notebooks/*.html"))
    if f"<{ELEMENT}" in path.read_text("utf-8")
]
FIELDS = {
    "accumulation_steps": "Accumulation steps",
    "plan": "What is recomputed",
    "moment": "Moment of the step (arrow keys move)",
}


class Stepper:
    """A stepper on an open page."""

    def __init__(self, there: Any) -> None:
        self.page = there.page
        self.element = self.page.locator(ELEMENT).first
        self.fields = {name: self.element.get_by_label(label, exact=True) for name, label in FIELDS.items()}

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.element.get_attribute("state"))
        return state

    @property
    def status(self) -> str:
        return str(self.element.get_by_role("status").inner_text())

    def press(self, name: str) -> None:
        self.element.get_by_role("button", name=name, exact=True).click()

    def agrees(self, accumulation_steps: int, plan: str, moment: int) -> None:
        assert self.state == {"accumulation_steps": accumulation_steps, "plan": plan, "moment": moment}
        moments = steps.shown_moments(accumulation_steps, plan)
        shown = moments[moment]
        assert self.status.startswith(
            f"{steps.sentence(shown, accumulation_steps)} {steps.write_bytes(shown.total_bytes)} are alive"
        )
        assert self.status.endswith(", the peak.") == (moment == steps.peak_moment(moments))
        rows = self.element.locator("tbody tr").evaluate_all(
            "all => all.map(at => [...at.children].map(one => one.textContent))"
        )
        assert [cell for row in rows for cell in row[1:]] == list(shown.cells)
        sizes = self.element.locator("dd > span:first-child").all_text_contents()
        assert sizes == [*map(steps.write_bytes, shown.category_bytes)]
        assert self.fields["moment"].input_value() == str(moment)
        assert self.fields["moment"].get_attribute("max") == str(len(moments) - 1)


@pytest.fixture
def stepper(open_page: Callable[..., Any], bases: dict[str, str]) -> Iterator[Stepper]:
    there = open_page(bases["http"], "book/all.html")
    yield Stepper(there)
    assert there.faults == []


def test_every_choice_begins_at_its_peak(stepper: Stepper) -> None:
    for plan in steps.PLANS:
        for count in steps.ACCUMULATION_STEPS:
            stepper.fields["plan"].select_option(plan)
            stepper.fields["accumulation_steps"].select_option(str(count))
            stepper.agrees(count, plan, steps.peak_moment(steps.shown_moments(count, plan)))


def test_keys_move_through_the_step(stepper: Stepper) -> None:
    stepper.fields["moment"].focus()
    last = len(steps.shown_moments(1, "every block")) - 1
    for key, moment in {"Home": 0, "ArrowRight": 1, "ArrowUp": 2, "ArrowLeft": 1, "End": last}.items():
        stepper.page.keyboard.press(key)
        stepper.agrees(1, "every block", moment)
    said = stepper.fields["moment"].get_attribute("aria-valuetext")
    assert said == f"{last} of {last}: Optimizer step; its temporaries are largest."


def test_buttons_move_by_one_by_a_layer_and_to_the_peak(stepper: Stepper) -> None:
    moments = steps.shown_moments(1, "every block")
    peak = steps.peak_moment(moments)
    stepper.press("One back")
    stepper.agrees(1, "every block", peak - 1)
    stepper.press("To the peak")
    stepper.agrees(1, "every block", peak)
    stepper.press("Layer on")
    assert moments[stepper.state["moment"]].where == "backward of the embedding"
    assert moments[stepper.state["moment"] - 1].where == moments[peak].where
    stepper.press("Layer back")
    assert (
        stepper.state["moment"]
        == next(i for i, one in enumerate(moments) if one.where == "backward of the embedding") - 1
    )
    stepper.fields["moment"].focus()
    stepper.page.keyboard.press("Home")
    for name in ("One back", "Layer back"):
        assert stepper.element.get_by_role("button", name=name).is_disabled()


def test_the_layer_at_work_is_marked(stepper: Stepper) -> None:
    marked = "at => [...at.querySelectorAll('[aria-current=true] th')].map(one => one.textContent)"
    for index, moment in enumerate(steps.shown_moments(1, "every block")):
        if index % 9 == 0:
            state = {"accumulation_steps": 1, "plan": "every block", "moment": index}
            stepper.element.evaluate("(at, state) => at.setAttribute('state', state)", json.dumps(state))
            layers = [
                layer for layer in steps.LAYERS if f"of {layer}" in moment.where or f"the {layer}" in moment.where
            ]
            assert stepper.element.evaluate(marked) == layers


def test_a_moment_that_is_not_there_is_said(stepper: Stepper) -> None:
    before = stepper.state
    stepper.element.evaluate("(at, state) => at.setAttribute('state', state)", json.dumps({**before, "moment": 999}))
    problem = stepper.page.locator(f"[id='{stepper.fields['moment'].get_attribute('aria-describedby')}']")
    assert problem.inner_text() == "The moment must be a whole number from 0 to 212."
    assert stepper.state == before and stepper.fields["moment"].get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("name", LESSONS)
def test_it_works_in_the_lessons(visit: Callable[..., Any], name: str, scheme: str) -> None:
    there = visit(name, scheme)
    stepper = Stepper(there)
    stepper.fields["plan"].select_option("none")
    stepper.fields["accumulation_steps"].select_option("4")
    stepper.agrees(4, "none", steps.peak_moment(steps.shown_moments(4, "none")))
    assert there.faults == []
