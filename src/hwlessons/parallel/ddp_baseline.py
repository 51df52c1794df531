"""Train the book's small transformer with DistributedDataParallel: gloo on CPUs, NCCL on GPUs, one host or several.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m hwlessons.parallel.ddp_baseline --steps 20

The same seed gives the same losses on any number of ranks, up to rounding: the global batch is the same rows, and its
mean is over all ranks' tokens.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hwlessons.lab import devices, seeds
from hwlessons.lab.transformer import Transformer
from hwlessons.parallel import ddp_checkpoint, ddp_settings
from hwlessons.parallel.backends import backend_for, missing_backend
from hwlessons.parallel.ddp_data import MakeBatch, rows_of_rank
from hwlessons.parallel.ddp_settings import BaselineSettings
from hwlessons.parallel.ddp_step import global_step
from hwlessons.parallel.rank_rows import RankRows
from hwlessons.parallel.reports import FOLDER, report
from hwlessons.parallel.traffic import Payload, count_and_all_reduce


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line, trains, and reports this rank's metrics."""
    settings = ddp_settings.parse(arguments)
    try:
        backend, device = _place(settings)
        rows, batch_of = rows_of_rank(settings, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
        timeout = timedelta(seconds=settings.collective_timeout_seconds)
        dist.init_process_group(backend, timeout=timeout, device_id=device if device.type == "cuda" else None)
        metrics = train(settings, rows, batch_of, device)
    except ValueError as error:
        raise SystemExit(f"ddp_baseline: {error}") from None
    if settings.metrics:
        folder = Path(settings.metrics)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank{dist.get_rank()}.json").write_text(json.dumps(metrics), "utf8")
    if FOLDER in os.environ:
        report(metrics)
    if dist.get_rank() == 0:
        num_ranks, first, last = dist.get_world_size(), metrics["losses"][0], metrics["losses"][-1]
        print(f"{num_ranks} ranks, {len(metrics['losses'])} optimizer steps, loss {first:.3f} to {last:.3f}")
    dist.destroy_process_group()


def train(settings: BaselineSettings, rows: RankRows, batch_of: MakeBatch, device: torch.device) -> dict[str, Any]:
    """Train on this rank, and return its metrics as plain values."""
    seeds.seed_everything(settings.seed)
    model = Transformer(settings.shape()).to(device, getattr(torch, settings.dtype))
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    payload = Payload()
    if settings.count_payload:
        ddp.register_comm_hook(payload, count_and_all_reduce)
    optimizer = make_optimizer(model, settings)
    before = ddp_checkpoint.Progress()
    if settings.resume:
        before = ddp_checkpoint.read_progress(Path(settings.resume), settings)
        ddp_checkpoint.load(Path(settings.resume), model, optimizer)
        rows.go_to(before.epoch, before.position)
    shares, step_seconds, seen, num_tokens = [], [], [], 0
    for _ in range(settings.steps):
        start = time.perf_counter()
        microbatches = next(rows)
        share, tokens = global_step(ddp, optimizer, [batch_of(one) for one in microbatches], device=device)
        devices.synchronize(device)
        step_seconds.append(time.perf_counter() - start)
        shares.append(share)
        num_tokens += tokens
        seen.append(microbatches)
    losses = torch.stack(shares)
    dist.all_reduce(losses)
    progress = ddp_checkpoint.Progress(rows.epoch, rows.position, (*before.losses, *losses.tolist()))
    if settings.save:
        ddp_checkpoint.save(Path(settings.save), model, optimizer, settings, progress)
    metrics = {
        "rank": dist.get_rank(),
        "num_ranks": dist.get_world_size(),
        "backend": dist.get_backend(),
        "device": str(device),
        "num_threads": torch.get_num_threads(),
        "num_tokens": num_tokens,
        "step_seconds": step_seconds,
        "parameter_bytes": sum(p.nbytes for p in model.parameters()),
        "optimizer_state_bytes": state_bytes(optimizer),
        **asdict(progress),
    }
    return (
        metrics | ({"rows": seen} if settings.report_rows else {}) | (asdict(payload) if settings.count_payload else {})
    )


def make_optimizer(model: nn.Module, settings: BaselineSettings) -> torch.optim.Optimizer:
    """The optimizer of the settings over all parameters."""
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.SGD
    return kind(model.parameters(), lr=settings.learning_rate)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all tensors in the optimizer's state, step counters included."""
    return sum(
        value.nbytes for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    )


def _place(settings: BaselineSettings) -> tuple[str, torch.device]:
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= set(os.environ):
        raise ValueError("start it with torchrun: python -m torch.distributed.run --standalone --nproc-per-node 2 -m …")
    backend = backend_for(devices.choose_device()) if settings.backend == "auto" else settings.backend
    problem = missing_backend(backend, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if problem:
        raise ValueError(problem)
    if backend == "gloo":
        return backend, torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return backend, device


if __name__ == "__main__":
    main()
