"""`trace`: a step's memory computed on fake tensors, which have shapes and dtypes but no data."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode

from hwlessons.lab.memory.fake_habits import check_module, fake_habits, stand_in
from hwlessons.lab.memory.recorder import Recorder
from hwlessons.lab.memory.replay import summarise
from hwlessons.lab.memory.step_memory import StepMemory
from hwlessons.lab.memory.storage_log import NO_OPERATORS
from hwlessons.lab.memory.trace_errors import TraceError, check_device, errors_that_name_the_line
from hwlessons.lab.memory.tracking import Build, collected_garbage, run_step, start

# on a CPU these compute every element's loss in the storage of their 0-dimensional result, and keep it
_REDUCED_IN_PLACE = {
    torch.ops.aten.mse_loss.default,
    torch.ops.aten.smooth_l1_loss.default,
    torch.ops.aten.soft_margin_loss.default,
    torch.ops.aten.binary_cross_entropy.default,
}
# CPU kernels write these in the prediction's dtype, which is this argument's; fake ones promote it with the target's
_IN_PREDICTION_DTYPE = {
    torch.ops.aten.soft_margin_loss.default: 0,
    torch.ops.aten.mse_loss_backward.default: 1,
    torch.ops.aten.smooth_l1_loss_backward.default: 1,
    torch.ops.aten.soft_margin_loss_backward.default: 1,
}


class FakeRecorder(Recorder):
    """The recorder on fake tensors: real arguments become fake ones with the same storage sharing."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self._fakes: dict[int, Tensor] = {}

    def convert(self, value: Any) -> Any:
        """`value` with a fake tensor for each real one inside."""
        if isinstance(value, FakeTensor):
            return value
        if isinstance(value, Tensor):
            check_device(value.device)
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

    def storage_id(self, tensor: Tensor, *, is_result: bool = False) -> tuple[int, bool]:
        return super().storage_id(self.convert(tensor), is_result=is_result)

    def enter_module(self, module: nn.Module, args: Any) -> None:
        check_module(module)
        super().enter_module(module, args)

    def __torch_dispatch__(self, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in NO_OPERATORS:
            return func(*args, **kwargs)
        if kwargs.get("device") is not None:
            check_device(torch.device(kwargs["device"]))
        if func is torch.ops.aten.lift_fresh.default:
            # torch.tensor(...): the fake mode itself keeps a small constant's value, as AdamW's step counter needs
            result = func(*args)
            self.storage_id(result)
            self.end_operator(func)
            return result
        args, kwargs = self.convert(args), self.convert(kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._value(func, args)
        result = super().__torch_dispatch__(func, classes, args, kwargs)
        if isinstance(result, Tensor) and result.is_sparse:
            raise TraceError("a sparse tensor's size depends on values. Measure with track(build)")
        return result

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call the operator; a loss and its gradient get the storage and dtype that their CPU kernels leave them."""
        result = func(*args, **kwargs)
        if func in _IN_PREDICTION_DTYPE:
            result = result.to(args[_IN_PREDICTION_DTYPE[func]].dtype)
        if func in _REDUCED_IN_PLACE and result.dim() == 0:
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
            result.untyped_storage().resize_(max(shape.numel(), 1) * result.itemsize)
        return result

    def _value(self, func: Any, args: Any) -> Any:
        try:
            return func(*args)
        except DataDependentOutputException:
            value = stand_in()
            if value is None or args[0].dtype is torch.bool:
                raise
            return float(value) if args[0].is_floating_point() else value


def trace(build: Build, *, num_steps: int = 2) -> StepMemory:
    """Run `build()` and `num_steps` optimizer steps on fake tensors: the same integers as `track`, without arithmetic.

    The model, autograd and the optimizer are the real ones, so a shape of billions of parameters is described in
    seconds on a machine that could not hold it. Counts are those of CPU kernels. A gradient scaler takes its path
    without overflow, and a data loader yields some order. Torch's random state, and gradients and optimizer state of
    tensors made outside of `build()`, are afterwards what they were.

    Args:
        build: returns `(model, optimizer, step)`, as for `track`; tensors that exist outside are converted when met.
        num_steps: steps to run; the last is described.

    Returns:
        Bytes of the last step by category and phase, with the timeline of everything.

    Raises:
        TraceError: if the step needs a tensor's value (`.item()`, `if loss > 0`, indexing by a boolean mask), another
            device than the CPU, a sparse tensor, or `nn.LSTM` with its oneDNN kernel.
        ValueError: if `num_steps` is below 1 or `build()` returns something else than the three parts.
    """
    with torch.random.fork_rng(devices=[]), FakeTensorMode(allow_non_fake_inputs=True) as fake_mode:
        recorder = FakeRecorder(fake_mode)
        with recorder.recording(), collected_garbage(), fake_habits(), errors_that_name_the_line():
            model, optimizers, step = start(recorder, build, num_steps)
            with outside_tensors_kept(model, optimizers):
                for number in range(1, num_steps + 1):
                    run_step(recorder, model, step, number)
                recorder.events = list(recorder.events)
    return summarise(recorder, "cpu")


@contextlib.contextmanager
def outside_tensors_kept(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> Iterator[None]:
    """Real parameters and their optimizers come out without fake gradients and fake state."""
    gradients = [(p, p.grad) for p in model.parameters() if not isinstance(p, FakeTensor)]
    states = [(optimizer, {p: dict(state) for p, state in optimizer.state.items()}) for optimizer in optimizers]
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for optimizer, state in states if gradients else ():
            optimizer.state.clear()
            optimizer.state.update(state)
