"""Log which storages autograd keeps for backward, and for how long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import checkpoint

from hwlessons.lab.memory.phases import in_backward
from hwlessons.lab.memory.storage_log import StorageLog, tensors_in

SavedTensorsHooks = torch.autograd.graph.saved_tensors_hooks


class Saved:
    """A tensor kept for backward; tells the log when autograd lets go of it."""

    __slots__ = ("events", "storage_id", "tensor")

    def __init__(self, tensor: Tensor, storage_id: int, events: list) -> None:
        self.tensor, self.storage_id, self.events = tensor, storage_id, events
        events.append(("save", storage_id, in_backward()))

    def __del__(self) -> None:
        self.events.append(("unsave", self.storage_id, 0))


@contextlib.contextmanager
def saved_tensors_logged(log: StorageLog) -> Iterator[None]:
    """Inside, `log` has a "save" for every tensor kept for backward and an "unsave" when autograd lets go of it.

    Other people's hooks, such as checkpointing's, replace ours while they are entered: what they return is kept then,
    and in backward, where a region is recomputed, the tensor itself. What selective checkpointing keeps is logged, too.
    """

    def pack(tensor: Tensor) -> Any:
        found = list(tensors_in(tensor))
        return Saved(tensor, log.storage_id(found[0])[0], log.events) if len(found) == 1 else tensor

    def unpack(packed: Any) -> Tensor:
        return packed.tensor if isinstance(packed, Saved) else packed

    def enter(hooks: Any) -> None:
        def pack_and_note(tensor: Tensor) -> Any:
            kept = [tensor] if in_backward() else []
            try:
                kept.append(hooks.pack_hook(tensor))
            finally:  # recomputation stops early by an error in the hook that keeps its last tensor
                for one in tensors_in(kept):
                    log.events.append(("save", log.storage_id(one)[0], in_backward()))
            return kept[-1]

        torch._C._autograd._push_saved_tensors_default_hooks(pack_and_note, hooks.unpack_hook)

    with (
        SavedTensorsHooks(pack, unpack),
        mock.patch.object(SavedTensorsHooks, "__enter__", enter),
        _selective_results_noted(pack),
    ):
        yield


def _selective_results_noted(pack: Callable[[Tensor], Any]) -> contextlib.AbstractContextManager:
    """Inside, `pack` gets every result that selective checkpointing keeps: it knows no hooks.

    A torch that wraps them in another way is fine for everything else; there, such a region is refused.
    """
    wrapper = getattr(checkpoint, "_VersionWrapper", None)
    if wrapper is None:
        return mock.patch.object(checkpoint, "SelectiveCheckpointContext", _refuse, create=True)

    def keep(self: Any, value: Any) -> None:
        wrapper.__init__(self, value)
        self.saved = [pack(tensor) for tensor in tensors_in(value)]

    return mock.patch.object(checkpoint, "_VersionWrapper", type("KeptResult", (wrapper,), {"__init__": keep}))


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        f"track and trace do not see what selective checkpointing keeps in torch {torch.__version__}: its "
        "_VersionWrapper is gone. Measure the step without it (no context_fn; keep_matmuls=False)"
    )
