"""What `trace` says when a step needs the value of a tensor that has none."""

from __future__ import annotations

import contextlib
import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)

import hwlessons

NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
_MESSAGES = ("is not supported for tensor subclasses", "fake tensor", "Cannot copy out of meta tensor")
_CPU_ONLY = "trace computes CPU kernels: make tensors on the cpu"
_ADVICE = {
    "not linked with support for": _CPU_ONLY,
    "of type FakeTensor which is not a subclass": "a lazy module's parameter cannot be traced. Give "
    "its size, or measure with track(build)",
}
_HIDDEN = (Path(torch.__file__).parent, Path(hwlessons.__file__).parent / "lab" / "memory")
_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))


class TraceError(RuntimeError):
    """A step asked for something that a fake tensor does not have; the message names the line and the way out."""

    def _render_traceback_(self) -> list[str]:
        return [f"TraceError: {self}"]


def needs_value() -> TraceError:
    """The error for a tensor's value, without the line."""
    return TraceError(
        "this needs a tensor's value, and a traced tensor has none (.item(), `if loss > 0`, boolean masks and saving "
        "need one). Take it out of the step, or measure with track(build), which runs on real tensors"
    )


def check_device(device: torch.device) -> None:
    """Refuse what is not the CPU's."""
    if device.type not in ("cpu", "meta"):
        raise TraceError(f"{_CPU_ONLY}, got device {str(device)!r}")


@contextlib.contextmanager
def errors_that_name_the_line() -> Iterator[None]:
    """Turn torch's several complaints about missing values into one that says where and what to do."""
    try:
        yield
    except TraceError as error:
        raise TraceError(f"{_where(error)}: {error}") from None
    except (*NEEDS_VALUES, RuntimeError, NotImplementedError) as error:
        if isinstance(error, NEEDS_VALUES) or any(part in str(error) for part in _MESSAGES):
            raise TraceError(f"{_where(error)}: {needs_value()}") from None
        for part, advice in _ADVICE.items():
            if part in str(error):
                raise TraceError(f"{_where(error)}: {advice}") from None
        raise


def _where(error: BaseException) -> str:
    """The reader's innermost line; a library's if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_below(frame.filename, _HIDDEN)]
    own = [frame for frame in frames if not _is_below(frame.filename, _LIBRARIES)]
    if not frames:
        return "the step"
    frame = (own or frames)[-1]
    line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    path = Path(frame.filename)
    name = "the cell" if path.name.startswith("<") or path.parent.name.startswith("ipykernel") else path.name
    return f"line {frame.lineno} of {name}: {line:.100}" if line else f"line {frame.lineno} of {name}"


def _is_below(filename: str, folders: tuple[Path, ...]) -> bool:
    return any(Path(filename).is_relative_to(folder) for folder in folders)
