"""The pipeline-schedule viewer on a built page, used as a reader does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hwlessons.show.widgets import pipeline_as_text as text

CELLS = "at => [...at.children].map(one => one.textContent)"
FIELDS = {
    "schedule": "Schedule",
    "num_stages": "Stages p",
    "num_microbatches": "Microbatches m",
    "num_chunks": "Chunks per stage v",
    "backward_ratio": "Backward time / forward time",
}


class Viewer:
    """A viewer on an open page."""

    def __init__(self, there: Any) -> None:
        self.page = there.page
        self.element = self.page.locator("hwl-pipeline-schedule-viewer").first
        self.fields = {name: self.element.get_by_label(label, exact=True) for name, label in FIELDS.items()}

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.element.get_attribute("state"))
        return state

    def set(self, name: str, value: Any) -> None:
        if name == "schedule":
            self.fields[name].select_option(value)
        else:
            self.fields[name].fill(str(value))
            self.fields[name].press("Enter")

    def said(self, name: str) -> str:
        """What is said beside a field, which must point to it."""
        field = self.fields[name].get_attribute("aria-describedby")
        return str(self.page.locator(f"[id='{field}']").inner_text())

    def agrees(self, **state: Any) -> None:
        assert self.state == state
        schedule = text.played(state)
        assert self.element.get_by_role("status").inner_text() == text.summary(schedule)
        rows = self.element.locator("tbody tr").evaluate_all(f"all => all.map({CELLS})")
        assert rows == [list(row) for row in text.rows(schedule)]
        names = self.element.locator(".hwl-slot text").all_text_contents()
        assert names == [text.task_name(action, schedule.num_chunks) for action in schedule.actions]
        facts = dict(self.element.locator("dl > div").evaluate_all(f"all => all.map({CELLS})"))
        assert facts == text.facts(schedule)


@pytest.fixture
def viewer(open_page: Callable[..., Any], bases: dict[str, str]) -> Iterator[Viewer]:
    there = open_page(bases["http"], "book/all.html")
    yield Viewer(there)
    assert there.faults == []


def test_a_reader_changes_everything(viewer: Viewer) -> None:
    state = {"schedule": "1f1b", "num_stages": 4, "num_microbatches": 8, "num_chunks": 1, "backward_ratio": 2}
    viewer.agrees(**state)
    for name, value in {"num_stages": 3, "num_microbatches": 9, "backward_ratio": 1.5, "schedule": "gpipe"}.items():
        viewer.set(name, value)
        state[name] = value
        viewer.agrees(**state)
    assert viewer.fields["num_chunks"].is_disabled()
    viewer.set("schedule", "interleaved")
    viewer.agrees(**{**state, "schedule": "interleaved", "num_chunks": 2})
    viewer.set("num_chunks", 4)
    viewer.agrees(**{**state, "schedule": "interleaved", "num_chunks": 4})
    viewer.set("schedule", "1f1b")
    viewer.agrees(**{**state, "schedule": "1f1b"})


def test_a_state_from_elsewhere_is_drawn(viewer: Viewer) -> None:
    state = {"schedule": "gpipe", "num_stages": 8, "num_microbatches": 16, "num_chunks": 1, "backward_ratio": 0.25}
    viewer.element.evaluate("(at, state) => at.setAttribute('state', state)", json.dumps(state))
    viewer.agrees(**state)


BAD = {
    "num_stages": [("0", "whole number from 1 to 8"), ("", "whole number from 1 to 8"), ("9", "from 1 to 8")],
    "num_microbatches": [("2.5", "whole number from 1 to 16"), ("-1", "whole number from 1 to 16")],
    "backward_ratio": [("0", "from 0.25 to 4"), ("1.125", "at most two decimals")],
}


def test_what_cannot_be_drawn_is_said_beside_the_field(viewer: Viewer) -> None:
    before = viewer.state
    for name, tries in BAD.items():
        for value, message in tries:
            viewer.set(name, value)
            assert message in viewer.said(name) and viewer.fields[name].get_attribute("aria-invalid") == "true"
            assert viewer.fields[name].input_value() == value
            assert viewer.state == before
        viewer.set(name, before[name])
        assert viewer.said(name) == "" and viewer.fields[name].get_attribute("aria-invalid") == "false"


def test_interleaved_needs_a_multiple_of_the_stages(viewer: Viewer) -> None:
    viewer.set("num_microbatches", 6)
    before = viewer.state
    viewer.set("schedule", "interleaved")
    assert "multiple of the 4 stages; 6 microbatches are none" in viewer.said("schedule")
    assert viewer.state == before and viewer.fields["schedule"].input_value() == "1f1b"


def test_it_is_used_with_keys_alone(viewer: Viewer) -> None:
    viewer.fields["num_stages"].focus()
    viewer.page.keyboard.press("ArrowUp")
    viewer.page.keyboard.press("Tab")
    assert viewer.state["num_stages"] == 5
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.dataset.is"
    seen = []
    for _ in range(4):
        seen.append(viewer.page.evaluate(focused))
        viewer.page.keyboard.press("Tab")
    assert seen == ["num_microbatches", "backward_ratio", "The schedule in time", "What each stage does and holds"]
