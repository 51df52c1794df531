"""What `track` and `trace` return: memory of a step by category, and its timeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class AllocationEvent(NamedTuple):
    """A storage that appears or disappears just before operator number `operator_index` has finished."""

    kind: str
    storage_id: int
    num_bytes: int
    operator_index: int


@dataclass(frozen=True)
class Timeline:
    """Live bytes after every operator of the build and of every step, as columns of equal length.

    Attributes:
        operators: operator names without their namespace, e.g. "addmm".
        phases: "build", "forward", "backward", "optimizer" or a name given by `phase`.
        steps: 0 for the build, then 1, 2, ...
        total_bytes: live bytes.
        category_bytes: the same by category; the categories add up to `total_bytes`.
        events: storages appearing and disappearing, for an allocator simulator.
    """

    operators: tuple[str, ...]
    phases: tuple[str, ...]
    steps: tuple[int, ...]
    total_bytes: tuple[int, ...]
    category_bytes: dict[str, tuple[int, ...]]
    events: tuple[AllocationEvent, ...]

    def __len__(self) -> int:
        return len(self.operators)


@dataclass(frozen=True)
class StepMemory:
    """Memory of the last step that was run, in bytes.

    Attributes:
        peak_bytes: the most that was alive after any operator of the step.
        peak_phase: "forward", "backward", "optimizer" or a name given by `phase`: where that was first reached.
        at_peak: bytes by category at that moment; they add up to `peak_bytes`.
        parameter_bytes: the model's parameters, a shared one once.
        gradient_bytes: the most that parameters' `.grad` held.
        optimizer_state_bytes: everything in the optimizer's state, step counters and master copies included.
        saved_activation_bytes: kept for backward when the last forward of the step ends, without parameters, inputs
            and cached weight casts.
        timeline: build and every step, operator by operator.
        allocator_peak_bytes: the CUDA allocator's own peak of the last step; None elsewhere.
    """

    peak_bytes: int
    peak_phase: str
    at_peak: dict[str, int]
    parameter_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int
    saved_activation_bytes: int
    timeline: Timeline = field(repr=False)
    allocator_peak_bytes: int | None = None
