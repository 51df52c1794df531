"""What a rank really holds: bytes of the storages behind its part of a model, and how far two results are apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class HeldBytes:
    """Bytes of the storages on this rank: padding counts, a storage that is shared counts once.

    Attributes:
        weight_bytes: parameters.
        gradient_bytes: their `.grad`.
        optimizer_state_bytes: every tensor in the optimizer's state.
    """

    weight_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> HeldBytes:
    """What this rank holds between backward and `zero_grad()`; of a sharded tensor, its own part."""
    parameters = list(model.parameters())
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return HeldBytes(
        weight_bytes=storage_bytes(parameters),
        gradient_bytes=storage_bytes(p.grad for p in parameters if p.grad is not None),
        optimizer_state_bytes=storage_bytes(states),
    )


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind the tensors' local parts, each storage once."""
    storages = (local_part(tensor).untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}.values())


def gathered_bytes(model: nn.Module) -> int:
    """Bytes of sharded parameters that are whole at this moment: FSDP2 puts plain tensors in their place."""
    return storage_bytes(p for p in model.parameters() if not isinstance(p, DTensor))


def local_part(tensor: Tensor) -> Tensor:
    """This rank's part of a DTensor; another tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def whole(tensor: Tensor) -> Tensor:
    """All parts of a DTensor, put together by a collective that every rank must join; another tensor as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def relative_difference(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest difference between two lists of tensors, over the largest value of the tensor that it is in."""
    pairs = [(whole(a), whole(b)) for a, b in zip(found, expected, strict=True)]
    return max(((a - b).abs().max() / b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)).item() for a, b in pairs)
