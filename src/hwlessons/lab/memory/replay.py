"""From the recorder's log to byte counts by category and moment."""

from __future__ import annotations

from typing import Any

from hwlessons.formulas.liveness import CATEGORIES
from hwlessons.lab.memory.recorder import Recorder
from hwlessons.lab.memory.step_memory import AllocationEvent, StepMemory, Timeline
from hwlessons.lab.memory.storage_log import Operator

_ROLES = {"gradient": "gradients", "input": "inputs", "cast": "cached_casts"}


class _Replay:
    """Live bytes by category while the log of one device is replayed, and the columns of its timeline."""

    def __init__(self, recorder: Recorder, device: str) -> None:
        self.recorder, self.device = recorder, device
        self.live = dict.fromkeys(CATEGORIES, 0)
        self.columns: dict[str, list[int]] = {category: [] for category in CATEGORIES}
        self.operators: list[Operator] = []
        self.steps: list[int] = []
        self.allocations: list[AllocationEvent] = []
        self._fixed = dict.fromkeys(recorder.optimizer_state, "optimizer_state")
        self._fixed |= dict.fromkeys(recorder.buffers, "buffers") | dict.fromkeys(recorder.parameters, "parameters")
        self._roles: dict[int, str] = {}
        self._num_saved: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._labels: dict[int, int] = {}
        self.step = self.gradient_bytes = self.saved_activation_bytes = self._saved_before = 0
        self._is_forward = False

    def run(self) -> None:
        """Replay everything."""
        for kind, number, value in self.recorder.events:
            if kind == "step":
                self._start_step(value)
            elif kind == "op":
                self._end_operator(value)
            elif self.recorder.devices[number] == self.device:
                self._change(kind, number, value)
                self.gradient_bytes = max(self.gradient_bytes, self.live["gradients"])
                if kind == "save" and not value:
                    self._is_forward = True
            self._saved_before = self.live["saved_activations"]
        _order_simultaneous_frees(self.allocations)

    def _start_step(self, number: int) -> None:
        self.step, self.gradient_bytes, self.saved_activation_bytes = number, 0, 0
        self._saved_before, self._is_forward = 0, False

    def _end_operator(self, operator: Operator) -> None:
        if operator.is_backward and self._is_forward:
            # the last forward has just ended
            self.saved_activation_bytes, self._is_forward = self._saved_before, False
        self.operators.append(operator)
        self.steps.append(self.step)
        for category, num_bytes in self.live.items():
            self.columns[category].append(num_bytes)

    def _change(self, kind: str, number: int, value: Any) -> None:
        if kind == "alloc":
            self._sizes[number] = 0
            self._resize(number, value)
        elif number not in self._sizes:
            return
        elif kind == "resize":
            self._resize(number, value)
        elif kind == "free":
            self._resize(number, 0)
            del self._sizes[number]
        else:
            self.live[self._category(number)] -= self._sizes[number]
            if kind in ("save", "unsave"):
                self._num_saved[number] = self._num_saved.get(number, 0) + (1 if kind == "save" else -1)
            else:
                self._roles[number] = _ROLES[kind]
            self.live[self._category(number)] += self._sizes[number]

    def _resize(self, number: int, num_bytes: int) -> None:
        old, index = self._sizes[number], len(self.operators)
        # numbered here, so that storages without bytes or elsewhere make no difference
        label = self._labels.setdefault(number, len(self._labels)) if old or num_bytes else -1
        if old:
            self.allocations.append(AllocationEvent("free", label, old, index))
        if num_bytes:
            self.allocations.append(AllocationEvent("alloc", label, num_bytes, index))
        self._sizes[number] = num_bytes
        self.live[self._category(number)] += num_bytes - old

    def _category(self, number: int) -> str:
        role = self._fixed.get(number) or self._roles.get(number)
        return role or ("saved_activations" if self._num_saved.get(number) else "temporaries")


def summarise(recorder: Recorder, device: str, allocator_peak_bytes: int | None = None) -> StepMemory:
    """Replay a recorder's log for the storages of one device type.

    Args:
        recorder: a recorder whose steps have ended.
        device: "cpu" or "cuda": storages elsewhere are left out.
        allocator_peak_bytes: passed through.
    """
    replay = _Replay(recorder, device)
    replay.run()
    totals = [sum(row) for row in zip(*replay.columns.values(), strict=True)]
    timeline = Timeline(
        operators=tuple(operator.name for operator in replay.operators),
        phases=tuple(operator.phase for operator in replay.operators),
        steps=tuple(replay.steps),
        total_bytes=tuple(totals),
        category_bytes={category: tuple(column) for category, column in replay.columns.items()},
        events=tuple(replay.allocations),
    )
    last = [index for index, number in enumerate(replay.steps) if number == replay.step]
    peak = max(last, key=totals.__getitem__)
    return StepMemory(
        peak_bytes=totals[peak],
        peak_phase=timeline.phases[peak],
        at_peak={category: column[peak] for category, column in replay.columns.items()},
        parameter_bytes=replay.columns["parameters"][last[-1]],
        gradient_bytes=replay.gradient_bytes,
        optimizer_state_bytes=replay.columns["optimizer_state"][last[-1]],
        saved_activation_bytes=replay.saved_activation_bytes,
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
