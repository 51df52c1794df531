"""The stepper through one optimizer step: what every operator finds alive, with accumulation and checkpointing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hwlessons.show.html import Grid
from hwlessons.show.widgets import step_moments as steps
from hwlessons.show.widgets.scripts import STEP_STEPPER, Script
from hwlessons.show.widgets.widget import Widget

ENTRIES = ("accumulation_steps", "plan", "moment")


class StepStepper(Widget):
    """Steps through an optimizer step of a small model of four blocks: a curve of its memory and what each layer holds.

    Leave it last in a cell to show it. In JupyterLab its properties follow the reader, and setting them moves it. The
    global batch is always 8 sequences of 128 tokens, in fp32 with AdamW.

    Args:
        accumulation_steps: 1, 2 or 4.
        plan: what is recomputed: "none", "every block", "every 2 blocks" or "selective".
        moment: which one to begin with, from 0; by default the peak.

    Raises:
        ValueError: for accumulation steps or a plan that it does not have, or a moment beyond the step's last.
    """

    script: ClassVar[Script] = STEP_STEPPER

    def __init__(self, accumulation_steps: int = 1, plan: str = "every block", moment: int | None = None) -> None:
        if moment is None:
            moment = _peak(accumulation_steps, plan)
        super().__init__(state={"accumulation_steps": accumulation_steps, "plan": plan, "moment": moment})

    @property
    def accumulation_steps(self) -> int:
        """Microbatches in the step; setting it moves to the new step's peak."""
        return int(self.state["accumulation_steps"])

    @accumulation_steps.setter
    def accumulation_steps(self, value: int) -> None:
        self.state = {"accumulation_steps": value, "plan": self.plan, "moment": _peak(value, self.plan)}

    @property
    def plan(self) -> str:
        """What is recomputed; setting it moves to the new step's peak."""
        return str(self.state["plan"])

    @plan.setter
    def plan(self, value: str) -> None:
        before = self.accumulation_steps
        self.state = {"accumulation_steps": before, "plan": value, "moment": _peak(before, value)}

    @property
    def moment(self) -> int:
        """Which moment is shown, from 0."""
        return int(self.state["moment"])

    @moment.setter
    def moment(self, value: int) -> None:
        self.state = {**self.state, "moment": value}

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """See `Widget.checked`."""
        if set(state) != set(ENTRIES):
            has = ", ".join(map(str, state)) or "no entries"
            raise ValueError(f"the state has {has}; it must have {', '.join(ENTRIES)}")
        moment, last = state["moment"], len(_moments(state["accumulation_steps"], state["plan"])) - 1
        if isinstance(moment, bool) or not isinstance(moment, int) or not 0 <= moment <= last:
            raise ValueError(f"moment must be an integer from 0 to {last}, got {moment!r}")
        return dict(state)

    def grid(self) -> tuple[Grid, str]:
        """See `Widget.grid`."""
        moments = _moments(self.accumulation_steps, self.plan)
        moment, peak = moments[self.moment], steps.peak_moment(moments)
        width = len(steps.KINDS)
        rows = [(layer, *moment.cells[row * width : (row + 1) * width]) for row, layer in enumerate(steps.LAYERS)]
        parts = zip(steps.CATEGORIES, moment.category_bytes, strict=True)
        written = ", ".join(f"{name.replace('_', ' ')} {steps.write_bytes(size)}" for name, size in parts)
        caption = (
            f"{steps.HOLDS}, at moment {self.moment} of {len(moments) - 1}, {steps.PLANS[self.plan]}:"
            f" {steps.sentence(moment, self.accumulation_steps)} {steps.write_bytes(moment.total_bytes)} are alive"
            f" ({written}); the step's peak is {steps.write_bytes(moments[peak].total_bytes)} · computed"
        )
        return Grid(steps.COLUMNS, rows, [False, True, True, True]), caption

    def __repr__(self) -> str:
        return f"StepStepper({self.accumulation_steps}, {self.plan!r}, moment={self.moment})"


def _moments(accumulation_steps: int, plan: str) -> tuple[steps.ShownMoment, ...]:
    if isinstance(accumulation_steps, bool) or accumulation_steps not in steps.ACCUMULATION_STEPS:
        allowed = ", ".join(map(str, steps.ACCUMULATION_STEPS))
        raise ValueError(f"accumulation_steps must be one of {allowed}, got {accumulation_steps!r}")
    if not isinstance(plan, str) or plan not in steps.PLANS:
        raise ValueError(f"plan must be one of {', '.join(steps.PLANS)}, got {plan!r}")
    return steps.shown_moments(accumulation_steps, plan)


def _peak(accumulation_steps: int, plan: str) -> int:
    return steps.peak_moment(_moments(accumulation_steps, plan))
