"""The book's transformer as a pipeline through torch.distributed.pipelining: a stage for each rank, as on one device.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m hwlessons.parallel.pipelined 8
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from hwlessons.lab.transformer import Transformer, rotary_table
from hwlessons.parallel.held import relative_difference
from hwlessons.parallel.reports import report
from hwlessons.parallel.sharded import SHAPE, gradients, loss_of, make_batch, make_model

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Stage(nn.Module):
    """The blocks of one stage of a model; the first has the embedding, the last the final norm and the head.

    Attributes:
        most_alive: the most microbatches that had gone forward and not yet begun backward.
    """

    def __init__(self, model: Transformer, stage: int, num_stages: int) -> None:
        super().__init__()
        per_stage = len(model.blocks) // num_stages
        self.shape = model.shape
        self.token_embedding = model.token_embedding if stage == 0 else None
        self.blocks = nn.ModuleList(list(model.blocks)[stage * per_stage : (stage + 1) * per_stage])
        is_last = stage == num_stages - 1
        self.end = nn.Sequential(model.final_norm, model.head) if is_last else nn.Identity()
        self.num_alive = self.most_alive = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.token_embedding is not None:
            x = self.token_embedding(x)
        rotary = rotary_table(x.shape[1], self.shape.head_dim, x)
        for block in self.blocks:
            x = block(x, rotary, None)
        x = self.end(x)
        self.num_alive += 1
        self.most_alive = max(self.most_alive, self.num_alive)
        if x.requires_grad:
            x.register_hook(self._backward_starts)
        return x

    def _backward_starts(self, gradient: Tensor) -> None:
        self.num_alive -= 1


def check_microbatches(num_rows: int, num_microbatches: int) -> None:
    """Raises ValueError unless the microbatches are equally large.

    A schedule cuts its input as `torch.tensor_split` does, which makes unequal ones without a word; their mean losses
    then have unequal weights.
    """
    if num_microbatches < 1 or num_rows % num_microbatches:
        allowed = ", ".join(str(n) for n in range(1, num_rows + 1) if num_rows % n == 0)
        raise ValueError(
            f"num_microbatches must divide the batch of {num_rows} rows ({allowed}), got {num_microbatches}"
        )


def run(schedule: str, num_microbatches: int, *, num_rows: int = 8, num_repetitions: int = 2) -> dict[str, Any]:
    """One step of the pipeline in an existing process group, in fp64; every rank is one stage.

    Returns:
        How far this stage's gradients are from one device's on the whole batch, the mean loss (last stage, else None)
        with that of one device, the most microbatches under way at once, and the seconds of the last repetition.

    Raises:
        ValueError: for an unknown schedule, or microbatches or ranks that do not divide.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    check_microbatches(num_rows, num_microbatches)
    rank, num_stages = dist.get_rank(), dist.get_world_size()
    if SHAPE.num_layers % num_stages:
        raise ValueError(f"the ranks must divide num_layers ({SHAPE.num_layers}), got {num_stages}")
    tokens, targets = make_batch(num_rows=num_rows)
    alone = make_model(dtype=torch.float64)
    loss = loss_of(alone(tokens), targets)
    loss.backward()
    module = Stage(make_model(dtype=torch.float64), rank, num_stages)
    stage = PipelineStage(module, rank, num_stages, torch.device("cpu"))
    pipeline = SCHEDULES[schedule](stage, n_microbatches=num_microbatches, loss_fn=loss_of)
    for _ in range(num_repetitions):  # the first one also finds out the sizes of what is sent
        module.zero_grad()
        module.num_alive = module.most_alive = 0
        losses: list[Tensor] = []
        dist.barrier()
        start = time.perf_counter()
        if rank == 0:
            pipeline.step(tokens)
        else:
            pipeline.step(target=targets, losses=losses)
        seconds = time.perf_counter() - start
    expected = gradients(Stage(alone, rank, num_stages))
    return {
        "stage": rank,
        "gradient_difference": relative_difference(gradients(module), expected),
        "loss": torch.stack(losses).mean().item() if losses else None,
        "loss_of_one_device": loss.item(),
        "most_alive": module.most_alive,
        "seconds": seconds,
    }


def main() -> None:
    """Reports `run()` of both schedules on every rank; the argument is the number of microbatches, 4 if left out."""
    dist.init_process_group("gloo")
    num_microbatches = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    report({schedule: run(schedule, num_microbatches) for schedule in SCHEDULES})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
