"""`track`: a step's memory measured on real tensors."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from hwlessons.counts import check_count
from hwlessons.lab.memory.recorder import Recorder
from hwlessons.lab.memory.replay import summarise
from hwlessons.lab.memory.step_memory import StepMemory

Build = Callable[[], tuple[nn.Module, Any, Callable[[], Any]]]


def track(build: Build, *, num_steps: int = 2) -> StepMemory:
    """Run `build()` and then `num_steps` optimizer steps on real tensors, and count what is alive after every operator.

    Args:
        build: returns `(model, optimizer, step)`; `optimizer` may be one optimizer or a sequence of them, and `step()`
            does one whole optimizer step with any number of microbatches.
        num_steps: steps to run; the last is described. From the second on, optimizer state exists when a step starts.

    Returns:
        Bytes of the last step by category and phase, with the timeline of everything. Where the parameters live on a
        GPU, storages on the host are not counted, and `allocator_peak_bytes` is the CUDA allocator's own peak.

    Raises:
        ValueError: if `num_steps` is below 1 or `build()` returns something else than the three parts.
    """
    recorder = Recorder()
    with recorder.recording(), collected_garbage():
        model, _, step = start(recorder, build, num_steps)
        on_cuda = any(parameter.is_cuda for parameter in model.parameters())
        for number in range(1, num_steps + 1):
            if on_cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            run_step(recorder, model, step, number)
        allocator_peak_bytes = torch.cuda.max_memory_allocated() if on_cuda else None
        # stop before the model dies, so that the log ends with the step
        recorder.events = list(recorder.events)
    return summarise(recorder, "cuda" if on_cuda else "cpu", allocator_peak_bytes)


def start(recorder: Recorder, build: Build, num_steps: int) -> tuple[nn.Module, list[Optimizer], Callable[[], Any]]:
    """Call `build()` under the recorder and note the roles of what it made."""
    check_count("num_steps", num_steps)
    parts = build()
    if not (isinstance(parts, tuple) and len(parts) == 3 and isinstance(parts[0], nn.Module) and callable(parts[2])):
        raise ValueError(f"build() must return (model, optimizer, step) with a torch.nn.Module, got {parts!r:.150}")
    model, optimizer, step = parts
    optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    for one in optimizers:
        if not isinstance(one, Optimizer):
            raise ValueError(f"build() must return torch.optim.Optimizer objects second, got {type(one).__name__}")
    recorder.watch(model, optimizers)
    return model, optimizers, step


def run_step(recorder: Recorder, model: nn.Module, step: Callable[[], Any], number: int) -> None:
    """One optimizer step; garbage of the step before is gone when it starts, so that counts are repeatable."""
    gc.collect()
    recorder.start_step(number)
    num_events = len(recorder.events)
    step()
    recorder.watch(model)
    if not any(kind == "op" for kind, _, _ in recorder.events[num_events:]):
        raise ValueError("step() ran no tensor operator, so there is no memory to describe")


@contextlib.contextmanager
def collected_garbage() -> Iterator[None]:
    """Python's cycle collector runs between steps only, on new objects: at random moments it would change counts."""
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    if not was_frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
