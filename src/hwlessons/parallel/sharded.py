"""The book's transformer under FSDP2: sharded by block, trained one step, compared with one device.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m hwlessons.parallel.sharded
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from hwlessons.facts.shapes import TransformerShape
from hwlessons.lab.transformer import Transformer
from hwlessons.parallel.counting import counted_collectives
from hwlessons.parallel.held import gathered_bytes, held_bytes, relative_difference
from hwlessons.parallel.reports import report

SHAPE = TransformerShape.llama_like(
    num_layers=2, width=48, num_heads=6, num_kv_heads=2, vocab_size=101, ffn_width=120, name="small"
)


def shard_by_block(
    model: Transformer, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool = True
) -> Transformer:
    """`fully_shard` for each block and then for the rest, so that one block is whole at a time; returns the model."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh)
    return model


def make_model(shape: TransformerShape = SHAPE, dtype: torch.dtype = torch.float32) -> Transformer:
    """The same weights on every rank and in every process."""
    torch.manual_seed(0)
    return Transformer(shape).to(dtype)


def make_batch(shape: TransformerShape = SHAPE, num_rows: int = 4, sequence: int = 16) -> tuple[Tensor, Tensor]:
    """The same random tokens and targets on every rank."""
    tokens = torch.randint(shape.vocab_size, (num_rows, sequence + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy per token."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """For-loop AdamW: it takes parameters of different meshes together."""
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)


def run(*, dtype: torch.dtype = torch.float32, reshard_after_forward: bool = True) -> dict[str, Any]:
    """One step on this rank's rows of the batch, in an existing process group.

    Returns:
        Bytes held after the step and bytes gathered at the end of forward, collectives in forward and in backward, this
        rank's loss, and how far gradients are from one device's on the whole batch (None in a fake process group).
    """
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    tokens, targets = make_batch(num_rows=2 * num_ranks)
    alone = make_model(dtype=dtype)
    loss_of(alone(tokens), targets).backward()
    mesh = init_device_mesh("cpu", (num_ranks,))
    model = shard_by_block(make_model(dtype=dtype), mesh=mesh, reshard_after_forward=reshard_after_forward)
    optimizer = make_adamw(model.parameters())
    with counted_collectives() as forward:
        loss = loss_of(model(tokens.chunk(num_ranks)[rank]), targets.chunk(num_ranks)[rank])
    gathered = gathered_bytes(model)
    with counted_collectives() as backward:
        loss.backward()
    is_real = dist.get_backend() != "fake"
    difference = relative_difference(gradients(model), gradients(alone)) if is_real else None
    optimizer.step()
    return {
        "rank": rank,
        **asdict(held_bytes(model, optimizer)),
        "gathered_bytes": gathered,
        "forward": forward,
        "backward": backward,
        "loss": loss.item(),
        "gradient_difference": difference,
    }


def gradients(model: nn.Module) -> list[Tensor]:
    """The gradients of all parameters, in their order."""
    return [p.grad for p in model.parameters() if p.grad is not None]


def main() -> None:
    """Reports `run()` on every rank."""
    dist.init_process_group("gloo")
    report(run())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
