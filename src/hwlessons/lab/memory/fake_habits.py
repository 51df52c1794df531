"""Habits of torch that a fake tensor would break, let work while a step is traced."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _foreach_utils

from hwlessons.lab.memory.trace_errors import TraceError, needs_value

_swap_tensors = torch.utils.swap_tensors
_HERE, _TORCH = Path(__file__).parent, Path(torch.__file__).parent
# torch's own code whose `.item()` only scales, seeds or looks for overflow, with the value that it gets
_STAND_INS = {_TORCH / "optim": 1, _TORCH / "utils" / "data": 1, _TORCH / "amp": 0}


def stand_in() -> int | None:
    """The value for an `.item()` that torch's optimizers, data loaders or gradient scaler ask for; None for others."""
    frame: Any = sys._getframe(1)
    while Path(frame.f_code.co_filename).is_relative_to(_HERE):
        frame = frame.f_back
    caller = Path(frame.f_code.co_filename)
    return next((value for folder, value in _STAND_INS.items() if caller.is_relative_to(folder)), None)


@contextlib.contextmanager
def fake_habits() -> Iterator[None]:
    """Inside, module conversion, deep copies, shuffling, foreach and gradient scalers work on fake tensors."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (torch.utils, "swap_tensors", _replace),
            (Tensor, "__deepcopy__", _deepcopy),
            (FakeTensor, "tolist", _tolist),
            (FakeTensor, "__format__", _format),
            (FakeTensor, "__reduce_ex__", _reduce),
            (_foreach_utils, "_foreach_supported_types", [*_foreach_utils._foreach_supported_types, FakeTensor]),
            (torch.amp.GradScaler, "get_scale", lambda self: self._init_scale if self.is_enabled() else 1.0),
        ):
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        yield


def check_module(module: nn.Module) -> None:
    """Refuse a module whose CPU kernel keeps what only a real run knows."""
    if isinstance(module, nn.LSTM) and torch.is_grad_enabled() and torch._C._get_mkldnn_enabled():
        raise TraceError(
            "nn.LSTM's oneDNN kernel keeps a workspace whose size a traced tensor does not tell. Measure with "
            "track(build), or turn the kernel off: torch.backends.mkldnn.enabled = False"
        )


def _replace(parameter: Tensor, applied: Tensor) -> None:
    """Module.to swaps fake parameters, while it gives real ones new data."""
    if parameter.device == applied.device:
        parameter.data = applied.data
    else:
        # the swap would be refused because the fake mode's own memo refers weakly to both
        with mock.patch.object(torch.utils, "weakref", types.SimpleNamespace(getweakrefs=lambda tensor: [])):
            _swap_tensors(parameter, applied)


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Any:
    if id(self) not in memo:
        with torch.no_grad():
            copy = self.data.clone()
        is_parameter = isinstance(self, nn.Parameter)
        memo[id(self)] = (nn.Parameter if is_parameter else Tensor.requires_grad_)(copy, self.requires_grad)
    return memo[id(self)]


def _tolist(self: FakeTensor) -> list[int]:
    if stand_in() is None:
        raise needs_value()
    return list(range(self.numel()))  # one permutation is as good as another


def _format(self: FakeTensor, specification: str) -> str:
    if specification:
        raise needs_value()
    return repr(self)


def _reduce(self: FakeTensor, protocol: int) -> Any:
    raise needs_value()
