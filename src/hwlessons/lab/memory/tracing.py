"""`trace`: a step's memory computed on fake tensors, which have shapes and dtypes but no data."""

from __future__ import annotations

import contextlib
import linecache
import traceback
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

from hwlessons.lab.memory.recorder import Recorder
from hwlessons.lab.memory.step_memory import StepMemory, summarise
from hwlessons.lab.memory.tracking import Build, collected_garbage, run_step, start

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
_NEEDS_VALUES_MESSAGES = ("is not supported for tensor subclasses", "fake tensor", "Cannot copy out of meta tensor")
_OURS = Path(__file__).parent
_TORCH = Path(torch.__file__).parent


class TraceError(RuntimeError):
    """A step asked for a value that a fake tensor does not have; the message names the line and the way out."""

    def _render_traceback_(self) -> list[str]:
        return [f"TraceError: {self}"]


class FakeRecorder(Recorder):
    """The recorder on fake tensors: real arguments become fake ones with the same storage sharing."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self._fakes: dict[int, Tensor] = {}

    def convert(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            return value
        if isinstance(value, Tensor):
            fake = self.fake_mode.from_tensor(value)
            storage = value.untyped_storage()
            if storage._cdata not in self._fakes:
                # the fake one lives as long as the real one
                self._fakes[storage._cdata] = fake
                weakref.finalize(storage, self._fakes.pop, storage._cdata, None)
            return fake
        if isinstance(value, list | tuple):
            items = [self.convert(item) for item in value]
            return items if isinstance(value, list) else type(value)(items)
        if isinstance(value, dict):
            return {key: self.convert(item) for key, item in value.items()}
        return value

    def __torch_dispatch__(self, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = (kwargs or {}).get("device")
        if device is not None and torch.device(device).type not in ("cpu", "meta"):
            raise TraceError(f"trace computes CPU kernels: create tensors on the cpu, got device {str(device)!r}")
        if func is torch.ops.aten.lift_fresh.default:
            # torch.tensor(...): the fake mode itself keeps a small constant's value, as AdamW's step counter needs
            result = func(*args)
            self.events.append(("input", self.storage_id(result)[0], 0))
            self.end_operator("lift_fresh")
            return result
        return super().__torch_dispatch__(func, classes, args, kwargs)


def trace(build: Build, *, num_steps: int = 2) -> StepMemory:
    """Run `build()` and `num_steps` optimizer steps on fake tensors: the same integers as `track`, without arithmetic.

    The model, autograd and the optimizer are the real ones, so a shape of billions of parameters is described in
    seconds on a machine that could not hold it. Counts are those of CPU kernels. A gradient scaler takes its path
    without overflow.

    Args:
        build: returns `(model, optimizer, step)`, as for `track`; tensors that exist outside are converted when met.
        num_steps: steps to run; the last is described.

    Returns:
        Bytes of the last step by category and phase, with the timeline of everything.

    Raises:
        TraceError: if the step needs a tensor's value (`.item()`, `if loss > 0`, indexing by a boolean mask) or
            another device than the CPU.
        ValueError: if `num_steps` is below 1 or `build()` returns something else than the three parts.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as fake_mode:
        recorder = FakeRecorder(fake_mode)
        with recorder.recording(), collected_garbage(), fake_conversions(), errors_that_name_the_line():
            model, step = start(recorder, build, num_steps)
            for number in range(1, num_steps + 1):
                run_step(recorder, model, step, number)
            recorder.events = list(recorder.events)
    return summarise(recorder, "cpu")


@contextlib.contextmanager
def fake_conversions() -> Iterator[None]:
    """Let two habits of torch work without values: `GradScaler`'s decision to step and `Module.to(dtype)`."""
    scaler = torch.amp.GradScaler
    no_weak_references = types.SimpleNamespace(getweakrefs=lambda tensor: [])
    with (
        # Module.to swaps fake parameters, and refuses because the fake mode's own memo refers to them weakly
        mock.patch.object(torch.utils, "weakref", no_weak_references, create=True),
        mock.patch.object(scaler, "_maybe_opt_step", lambda self, optimizer, state, *a, **k: optimizer.step(*a, **k)),
        mock.patch.object(scaler, "get_scale", lambda self: self._init_scale if self.is_enabled() else 1.0),
    ):
        yield


@contextlib.contextmanager
def errors_that_name_the_line() -> Iterator[None]:
    """Turn torch's several complaints about missing values into one that says where and what to do."""
    try:
        yield
    except _NEEDS_VALUES as error:
        raise TraceError(_explain(error)) from None
    except (RuntimeError, NotImplementedError) as error:
        if isinstance(error, TraceError) or not any(part in str(error) for part in _NEEDS_VALUES_MESSAGES):
            raise
        raise TraceError(_explain(error)) from None


def _explain(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(_TORCH) and not Path(frame.filename).is_relative_to(_OURS)
    ]
    where = "the step"
    if frames:
        frame = frames[-1]
        line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
        where = f"line {frame.lineno} of {Path(frame.filename).name}: {line}"
    return (
        f"{where}: this needs a tensor's value, and a traced tensor has none (also .item(), `if loss > 0` and boolean "
        "masks). Take the line out of the step, or measure with track(build), which runs on real tensors"
    )
