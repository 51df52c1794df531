"""Tensor parallelism of the book's transformer by DTensor, alone or under FSDP2 on a mesh of two axes.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m hwlessons.parallel.tensor_split
python -m torch.distributed.run --standalone --nproc-per-node 4 -m hwlessons.parallel.tensor_split 2
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from hwlessons.lab.transformer import Transformer
from hwlessons.parallel.counting import counted_collectives
from hwlessons.parallel.held import held_bytes, relative_difference
from hwlessons.parallel.reports import report
from hwlessons.parallel.sharded import SHAPE, gradients, loss_of, make_adamw, make_batch, make_model, shard_by_block

EVEN = replace(SHAPE, vocab_size=104)  # divides


def split_model(model: Transformer, mesh: DeviceMesh, *, share_inputs: bool = True) -> Transformer:
    """Column then row in attention and in feed-forward; embedding and head by vocabulary. Returns the model.

    Args:
        model: its vocabulary must divide: DTensor would pad, and the formulas do not.
        mesh: one axis.
        share_inputs: query, key and value (and gate and up) share one distributed input, so that their parts of its
            gradient are added before one all-reduce; else each has an all-reduce of its own.
    """
    column, row = ColwiseParallel(), RowwiseParallel()
    plan: dict[str, ParallelStyle] = {
        "attention.query": column,
        "attention.key": column,
        "attention.value": column,
        "attention.output": row,
        "feed_forward.gate": column,
        "feed_forward.up": column,
        "feed_forward.down": row,
    }
    if share_inputs:
        plan |= {"attention": shared_input(3), "feed_forward": shared_input(1)}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    ends = {
        "token_embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, ends)
    return model


def shared_input(num_inputs: int) -> PrepareModuleInput:
    """The first input of a module becomes one DTensor that all its layers share; the others stay as they are."""
    layouts = (Replicate(), *[None] * (num_inputs - 1))
    return PrepareModuleInput(input_layouts=layouts, desired_input_layouts=layouts)


def run(
    data_parallel_size: int = 1, *, dtype: torch.dtype = torch.float64, share_inputs: bool = True
) -> dict[str, Any]:
    """One step of the split model in an existing process group, on a mesh of d × t ranks.

    Returns:
        Bytes held after the step, collectives in forward and in backward, and how far gradients
        are from one device's (None in a fake process group).

    Raises:
        ValueError: if d does not divide the ranks.
    """
    num_ranks = dist.get_world_size()
    if num_ranks % data_parallel_size:
        raise ValueError(f"data_parallel_size must divide the ranks ({num_ranks}), got {data_parallel_size}")
    t = num_ranks // data_parallel_size
    mesh = init_device_mesh("cpu", (data_parallel_size, t), mesh_dim_names=("dp", "tp"))
    tokens, targets = make_batch(EVEN, num_rows=2 * data_parallel_size)
    alone = make_model(EVEN, dtype)
    loss_of(alone(tokens), targets).backward()
    model = split_model(make_model(EVEN, dtype), mesh["tp"], share_inputs=share_inputs)
    if data_parallel_size > 1:
        shard_by_block(model, mesh=mesh["dp"])
    optimizer = make_adamw(model.parameters())
    mine = mesh.get_local_rank("dp")
    with counted_collectives() as forward:
        loss = loss_of(model(tokens.chunk(data_parallel_size)[mine]), targets.chunk(data_parallel_size)[mine])
    with counted_collectives() as backward:
        loss.backward()
    is_real = dist.get_backend() != "fake"
    difference = relative_difference(gradients(model), gradients(alone)) if is_real else None
    optimizer.step()
    return {
        "place": {name: mesh.get_local_rank(name) for name in ("dp", "tp")},
        **asdict(held_bytes(model, optimizer)),
        "forward": forward,
        "backward": backward,
        "gradient_difference": difference,
    }


def main() -> None:
    """Reports `run()` on every rank; the argument is the data-parallel size, 1 if left out."""
    dist.init_process_group("gloo")
    report(run(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
