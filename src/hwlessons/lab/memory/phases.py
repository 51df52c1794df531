"""Where a step is: the reader's named phases, backward, autocast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_named_phases: list[str] = []


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what happens inside, e.g. `with phase("evaluate")`, in the timeline of a surrounding `track` or `trace`.

    The innermost name counts. Outside `track` and `trace` it does nothing.
    """
    _named_phases.append(name)
    try:
        yield
    finally:
        _named_phases.pop()


def named_phase() -> str:
    """The innermost name given by `phase`, or nothing."""
    return _named_phases[-1] if _named_phases else ""


def in_backward() -> bool:
    """Whether autograd's engine is visiting a graph."""
    return torch._C._current_graph_task_id() != -1


def in_autocast() -> bool:
    """Whether some autocast region is open, also while autocast itself is casting (then it reads as disabled)."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return nesting > 0
