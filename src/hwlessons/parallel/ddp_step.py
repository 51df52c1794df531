"""One optimizer step of data-parallel training: accumulation, one synchronisation, the mean over all ranks' tokens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hwlessons.lab.training import num_supervised


def global_step(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    microbatches: Sequence[tuple[Tensor, Tensor]],
    *,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, int]:
    """Step on the mean loss of all supervised tokens of all ranks' microbatches.

    DDP averages gradients over d ranks, so each rank's loss is d × (its sum of losses) / (tokens of all ranks): ranks
    and microbatches may hold different numbers of tokens. Gradients travel with the last microbatch only.

    Returns:
        This rank's share of the mean loss (shares of all ranks add up to it), and the tokens of all ranks.

    Raises:
        ValueError: on every rank, if no rank has a supervised token.
    """
    num_ranks = dist.get_world_size()
    count = torch.tensor(sum(num_supervised(targets) for _, targets in microbatches), device=device)
    dist.all_reduce(count)
    num_tokens = int(count)
    if not num_tokens:
        raise ValueError("targets must hold a supervised token on some rank, got none")
    share = torch.zeros((), device=device)
    for number, (inputs, targets) in enumerate(microbatches, start=1):
        with nullcontext() if number == len(microbatches) else model.no_sync():
            logits = model(inputs.to(device))
            targets = targets.to(device).flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), targets, reduction="sum") / num_tokens
            del logits
            (loss * num_ranks).backward()
        share = share + loss.detach()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return share, num_tokens
