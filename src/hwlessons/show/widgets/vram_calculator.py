"""The VRAM calculator: what a training step takes at its peak, and on which devices it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hwlessons.facts.shapes import load_shapes, shape
from hwlessons.show.html import Grid
from hwlessons.show.widgets import vram_as_text as text
from hwlessons.show.widgets.scripts import VRAM_CALCULATOR, Script
from hwlessons.show.widgets.widget import Widget


class VramCalculator(Widget):
    """Says what one training step takes, by category, when that is, where it fits, and what would make it fit.

    Leave it last in a cell to show it. In JupyterLab its `state` follows the reader, and `change` moves it.

    Args:
        model: a published shape (`facts.shapes`), or "custom" with the sizes among `entries`.
        entries: other entries of the state: the model's `style` and sizes, `microbatch`, `sequence`,
            `num_microbatches`, `precision`, `attention`, `recomputation`, `optimizer`, `implementation`, `adapters`,
            `rank`, `zero_stage`, `num_devices` and `device`. A `sequence` has 2048 tokens where none is given: a model
            of fewer learned positions needs a shorter one.

    Raises:
        ValueError: for an unknown entry or a value that is not allowed.
    """

    script: ClassVar[Script] = VRAM_CALCULATOR

    def __init__(self, model: str = "llama-7b", **entries: Any) -> None:
        super().__init__(state=_changed(text.START, {"model": model, **entries}))

    def change(self, **entries: Any) -> None:
        """Set entries of the state; a model brings its sizes along.

        Raises:
            ValueError: for an unknown entry or a value that is not allowed; the state stays.
        """
        self.state = _changed(self.state, entries)

    @property
    def peak_bytes(self) -> int:
        """The most that the step holds."""
        return text.peak_in(self.state).peak_bytes

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """See `Widget.checked`."""
        text.check(state)
        return dict(state)

    def grid(self) -> tuple[Grid, str]:
        """See `Widget.grid`."""
        peak = text.peak_in(self.state)
        parts = ", ".join(f"{name} {written}" for name, written in text.facts(peak).items())
        what = f"{self.state['model']}, microbatch {self.state['microbatch']}, sequence {self.state['sequence']}"
        caption = f"{what}: {text.summary(peak)} Of that: {parts}. {text.verdict(self.state, peak)} · computed"
        return Grid(text.COLUMNS, text.rows(peak), [False, True, False]), caption

    def __repr__(self) -> str:
        brought = text.shape_entries(shape(self.state["model"])) if self.state["model"] != text.CUSTOM else {}
        given = {**text.START, **brought}
        changed = [
            f"{name}={value!r}" for name, value in self.state.items() if name != "model" and value != given[name]
        ]
        return f"VramCalculator({', '.join([repr(self.state['model']), *changed])})"


def _changed(state: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    model = entries.get("model")  # one that is unknown is refused with the state
    known = isinstance(model, str) and model in load_shapes()
    brought = text.shape_entries(shape(str(model))) if known else {}
    if unknown := [name for name in entries if name not in text.START]:
        raise ValueError(f"unknown entries {', '.join(unknown)}; there are {', '.join(text.START)}")
    return {**state, **brought, **entries}
