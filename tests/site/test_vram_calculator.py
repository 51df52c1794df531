"""The VRAM calculator on a built page, used as a reader does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hwlessons.show.widgets import vram_as_text as text

CELLS = "at => [...at.children].map(one => one.textContent)"
NAMES = {**text.LABELS, **{name: limits["label"] for name, limits in text.COUNTS.items()}}


class Calculator:
    """A calculator on an open page."""

    def __init__(self, there: Any) -> None:
        self.page = there.page
        self.element = self.page.locator("hwl-vram-calculator").first
        self.fields = {name: self.element.get_by_label(label, exact=True) for name, label in NAMES.items()}

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.element.get_attribute("state"))
        return state

    def set(self, name: str, value: Any) -> None:
        if name in text.LABELS:
            self.fields[name].select_option(value)
        else:
            self.fields[name].fill(str(value))
            self.fields[name].press("Enter")

    def said(self, name: str) -> str:
        """What is said beside a field, which must point to it."""
        field = self.fields[name].get_attribute("aria-describedby")
        return str(self.page.locator(f"[id='{field}']").inner_text())

    def agrees(self, **changed: Any) -> None:
        """All that is shown is what Python says; the state is that of the start but for what is changed."""
        state = {**text.START, **changed}
        assert self.state == state
        peak = text.peak_in(state)
        assert self.element.get_by_role("status").inner_text() == text.summary(peak)
        assert self.element.locator(".hwl-note").inner_text() == text.verdict(state, peak)
        rows = self.element.locator("tbody tr").evaluate_all(f"all => all.map({CELLS})")
        assert rows == [list(row) for row in text.rows(peak)]
        assert dict(self.element.locator("dl > div").evaluate_all(f"all => all.map({CELLS})")) == text.facts(peak)
        current = self.element.locator("tr[aria-current=true] th").all_text_contents()
        assert current == [state["device"]]


@pytest.fixture
def calculator(open_page: Callable[..., Any], bases: dict[str, str]) -> Iterator[Calculator]:
    there = open_page(bases["http"], "book/all.html")
    yield Calculator(there)
    assert there.faults == []


def test_a_reader_changes_everything(calculator: Calculator) -> None:
    calculator.agrees()
    changed: dict[str, Any] = {}
    for name, value in {
        "device": "RTX-4090",
        "microbatch": 8,
        "num_microbatches": 4,
        "sequence": 1024,
        "precision": "autocast_bf16",
        "adapters": "LoRA",
        "rank": 8,
        "recomputation": "blocks",
        "optimizer": "momentum",
        "implementation": "fused",
        "zero_stage": "2",
        "num_devices": 8,
    }.items():
        assert name not in ("num_devices", "rank") or not calculator.fields[name].is_disabled()
        calculator.set(name, value)
        changed[name] = value
        calculator.agrees(**changed)
    calculator.set("adapters", "none")
    calculator.set("attention", "materialised")
    calculator.agrees(**{**changed, "adapters": "none", "attention": "materialised"})


def test_a_model_brings_its_sizes_and_a_size_makes_another_model(calculator: Calculator) -> None:
    calculator.set("sequence", 1024)
    calculator.set("model", "gpt2-xl")
    sizes = {"model": "gpt2-xl", "style": "GPT-2", "num_layers": 48, "width": 1600, "num_heads": 25}
    sizes |= {"num_kv_heads": 25, "ffn_width": 6400, "vocab_size": 50257, "max_positions": 1024, "sequence": 1024}
    calculator.agrees(**sizes)
    calculator.set("num_heads", 50)
    sizes |= {"model": "custom", "num_heads": 50, "num_kv_heads": 50}
    calculator.agrees(**sizes)
    calculator.set("style", "Llama")
    sizes |= {"style": "Llama", "max_positions": 0}
    calculator.agrees(**sizes)
    calculator.set("num_kv_heads", 10)
    calculator.agrees(**{**sizes, "num_kv_heads": 10})
    calculator.set("style", "GPT-2")
    calculator.agrees(**{**sizes, "style": "GPT-2", "max_positions": 1024})


BAD = {
    "microbatch": [("0", "from 1 to 10000"), ("", "whole number"), ("2.5", "whole number")],
    "sequence": [("-1", "from 1 to 10000000")],
    "num_heads": [("7", "Heads must divide the width, 4096"), ("1e9", "from 1 to 1000")],
    "num_kv_heads": [("5", "must divide the 32 heads")],
    "max_positions": [("10", "Blocks as in Llama have none: 0")],
}


def test_what_cannot_be_counted_is_said_beside_the_field(calculator: Calculator) -> None:
    before = calculator.state
    for name, tries in BAD.items():
        for value, message in tries:
            calculator.set(name, value)
            assert message in calculator.said(name)
            assert calculator.fields[name].get_attribute("aria-invalid") == "true"
            assert calculator.fields[name].input_value() == value
            assert calculator.state == before
        calculator.set(name, before[name])
        assert calculator.said(name) == "" and calculator.fields[name].get_attribute("aria-invalid") == "false"


def test_sizes_that_only_go_together_are_taken_together(calculator: Calculator) -> None:
    calculator.set("width", 5000)
    assert "Heads must divide the width, 5000" in calculator.said("width")
    calculator.set("num_heads", 30)
    assert "Heads must divide the width, 5000" in calculator.said("num_heads")
    calculator.agrees()
    calculator.set("num_heads", 50)
    calculator.agrees(model="custom", width=5000, num_heads=50, num_kv_heads=50)
    assert calculator.said("width") == calculator.said("num_heads") == ""
    calculator.set("microbatch", 0)
    calculator.set("sequence", 1024)
    calculator.agrees(model="custom", width=5000, num_heads=50, num_kv_heads=50, sequence=1024)
    assert calculator.fields["microbatch"].input_value() == "1" and calculator.said("microbatch") == ""


def test_a_choice_that_does_not_go_is_taken_back(calculator: Calculator) -> None:
    calculator.set("model", "gpt2-small")
    assert calculator.said("model") == "The model takes at most 1024 tokens in a sequence, not 2048."
    assert calculator.fields["model"].input_value() == "llama-7b"
    calculator.agrees()
    calculator.set("sequence", 1024)
    calculator.agrees(sequence=1024)


def test_a_state_from_elsewhere_is_drawn(calculator: Calculator) -> None:
    state = {**text.START, "model": "custom", "num_layers": 2, "zero_stage": "3", "num_devices": 3}
    calculator.element.evaluate("(at, state) => at.setAttribute('state', state)", json.dumps(state))
    calculator.agrees(model="custom", num_layers=2, zero_stage="3", num_devices=3)


def test_it_is_used_with_keys_alone(calculator: Calculator) -> None:
    calculator.fields["model"].focus()
    focused = "document.activeElement.dataset.is ?? document.activeElement.getAttribute('aria-label')"
    seen = []
    for _ in range(21):
        seen.append(calculator.page.evaluate(focused))
        calculator.page.keyboard.press("Tab")
    assert seen[:3] == ["model", "device", "style"] and seen[-1] == "Whether the step fits, for every device"
    assert set(seen[:-1]) == set(NAMES) - {"num_devices", "rank"}
    calculator.fields["microbatch"].focus()
    calculator.page.keyboard.press("ArrowUp")
    calculator.page.keyboard.press("Tab")
    calculator.agrees(microbatch=2)
    calculator.fields["recomputation"].focus()
    calculator.page.keyboard.press("ArrowDown")
    calculator.agrees(microbatch=2, recomputation="all but matmuls")
