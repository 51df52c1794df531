"""From the recorder's log to byte counts by category and moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

CATEGORIES = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "saved_activations",
    "cached_casts",
    "inputs",
    "temporaries",
)


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


class _Ledger:
    """Live bytes by category while the log is replayed."""

    def __init__(self, fixed: dict[int, str]) -> None:
        self.fixed = fixed
        self.bytes_by_category = dict.fromkeys(CATEGORIES, 0)
        self.sizes: dict[int, int] = {}
        self.category: dict[int, str] = {}
        self.roles: dict[int, str] = {}
        self.num_saved: dict[int, int] = {}

    def apply(self, kind: str, number: int, value: Any) -> None:
        if kind == "alloc":
            self.sizes[number] = value
            self.category[number] = self._category(number)
            self.bytes_by_category[self.category[number]] += value
            return
        if number not in self.sizes:
            return
        old = self.category[number]
        if kind == "free":
            self.bytes_by_category[old] -= self.sizes.pop(number)
            return
        if kind == "resize":
            self.bytes_by_category[old] += value - self.sizes[number]
            self.sizes[number] = value
            return
        if kind in ("save", "unsave"):
            self.num_saved[number] = self.num_saved.get(number, 0) + (1 if kind == "save" else -1)
        else:
            self.roles[number] = {"gradient": "gradients", "input": "inputs", "cast": "cached_casts"}[kind]
        new = self.category[number] = self._category(number)
        self.bytes_by_category[old] -= self.sizes[number]
        self.bytes_by_category[new] += self.sizes[number]

    def _category(self, number: int) -> str:
        role = self.fixed.get(number) or self.roles.get(number)
        return role or ("saved_activations" if self.num_saved.get(number) else "temporaries")


def summarise(recorder: Any, device: str, allocator_peak_bytes: int | None = None) -> StepMemory:
    """Replay a recorder's log for the storages of one device type.

    Args:
        recorder: a `Recorder` whose steps have ended.
        device: "cpu" or "cuda": storages elsewhere are left out.
        allocator_peak_bytes: passed through.
    """
    fixed = dict.fromkeys(recorder.optimizer_state, "optimizer_state")
    fixed |= dict.fromkeys(recorder.buffers, "buffers") | dict.fromkeys(recorder.parameters, "parameters")
    ledger = _Ledger(fixed)
    operators: list[str] = []
    phases: list[str] = []
    steps: list[int] = []
    columns: dict[str, list[int]] = {category: [] for category in CATEGORIES}
    events: list[AllocationEvent] = []
    step, saved_bytes, saved_before, gradient_bytes, previous = 0, 0, 0, 0, "build"
    for kind, number, value in recorder.events:
        if kind == "step":
            step, saved_bytes, gradient_bytes, previous = value, 0, 0, "forward"
        elif kind == "op":
            name, now = value
            if now == "backward" and previous != "backward":
                saved_bytes = saved_before
            operators.append(name)
            phases.append(now)
            steps.append(step)
            for category, num_bytes in ledger.bytes_by_category.items():
                columns[category].append(num_bytes)
            previous = now
        elif recorder.devices[number] == device:
            if kind in ("alloc", "free", "resize"):
                _log(events, kind, number, value, ledger.sizes.get(number, 0), len(operators))
            ledger.apply(kind, number, value)
        gradient_bytes = max(gradient_bytes, ledger.bytes_by_category["gradients"])
        saved_before = ledger.bytes_by_category["saved_activations"]
    _order_simultaneous_frees(events)
    totals = [sum(row) for row in zip(*columns.values(), strict=True)]
    timeline = Timeline(
        tuple(operators),
        tuple(phases),
        tuple(steps),
        tuple(totals),
        {category: tuple(column) for category, column in columns.items()},
        tuple(events),
    )
    last = [index for index, number in enumerate(steps) if number == step]
    peak = max(last, key=totals.__getitem__)
    return StepMemory(
        peak_bytes=totals[peak],
        peak_phase=phases[peak],
        at_peak={category: column[peak] for category, column in columns.items()},
        parameter_bytes=columns["parameters"][last[-1]],
        gradient_bytes=gradient_bytes,
        optimizer_state_bytes=columns["optimizer_state"][last[-1]],
        saved_activation_bytes=saved_bytes,
        timeline=timeline,
        allocator_peak_bytes=allocator_peak_bytes,
    )


def _order_simultaneous_frees(events: list[AllocationEvent]) -> None:
    """Tensors that a cache drops at once die in the order of their addresses, which no two runs share."""
    first = 0
    for index in range(1, len(events) + 1):
        same = index < len(events) and events[index].operator_index == events[first].operator_index
        if events[first].kind == "free" and same and events[index].kind == "free":
            continue
        if events[first].kind == "free":
            events[first:index] = sorted(events[first:index])
        first = index


def _log(events: list[AllocationEvent], kind: str, number: int, value: int, size: int, index: int) -> None:
    if kind in ("free", "resize"):
        events.append(AllocationEvent("free", number, size, index))
    if kind in ("alloc", "resize"):
        events.append(AllocationEvent("alloc", number, value, index))
