"""Arithmetic of batches: global batch, accumulation steps, optimizer steps, and means over unequal microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from hwlessons.counts import check_count


def global_batch(microbatch: int, accumulation_steps: int, data_parallel_size: int = 1) -> int:
    """Examples that contribute to one optimizer step, B = b * a * d (a count).

    Args:
        microbatch: b, examples in one forward pass on one device.
        accumulation_steps: a, forward and backward passes on each device before the optimizer steps.
        data_parallel_size: d, replicas that train on different data.

    Raises:
        ValueError: unless all three are integers of at least 1.
    """
    _check_counts(microbatch=microbatch, accumulation_steps=accumulation_steps, data_parallel_size=data_parallel_size)
    return microbatch * accumulation_steps * data_parallel_size


def accumulation_steps_for(global_batch: int, microbatch: int, data_parallel_size: int = 1) -> int:
    """Accumulation steps that make up `global_batch` exactly, a = B / (b * d) (a count).

    Raises:
        ValueError: unless all three are integers of at least 1 and b * d divides B: nothing is rounded, because a
            rounded a would be training on another global batch.
    """
    _check_counts(global_batch=global_batch, microbatch=microbatch, data_parallel_size=data_parallel_size)
    at_once = microbatch * data_parallel_size
    if global_batch % at_once:
        fitting = [b for b in range(1, global_batch + 1) if global_batch % (b * data_parallel_size) == 0]
        allowed = f"microbatches that do: {', '.join(map(str, fitting))}" if fitting else "no microbatch does"
        raise ValueError(
            f"microbatch × data_parallel_size must divide global_batch ({global_batch}), "
            f"got {microbatch} × {data_parallel_size} = {at_once}; {allowed}"
        )
    return global_batch // at_once


def optimizer_steps_per_epoch(num_microbatches: int, accumulation_steps: int) -> int:
    """Optimizer steps in which every microbatch is used once; a last group that is not full is a step, too (a count).

    Raises:
        ValueError: unless both are integers of at least 1.
    """
    _check_counts(num_microbatches=num_microbatches, accumulation_steps=accumulation_steps)
    return -(-num_microbatches // accumulation_steps)


def token_mean(mean_losses: Sequence[float], num_tokens: Sequence[int]) -> float:
    """Mean loss per token of several microbatches, sum(n_i * loss_i) / sum(n_i), in the unit of the losses.

    Args:
        mean_losses: mean loss per token of each microbatch.
        num_tokens: supervised tokens of each; a microbatch may have none, but not all of them.

    Raises:
        ValueError: if the lengths differ, a count is negative or no integer, or there is no token at all.
    """
    if len(mean_losses) != len(num_tokens):
        raise ValueError(f"num_tokens must have one entry per loss ({len(mean_losses)}), got {len(num_tokens)}")
    for count in num_tokens:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"num_tokens must be integers of at least 0, got {count!r}")
    if not sum(num_tokens):
        raise ValueError(f"num_tokens must hold at least one supervised token, got {list(num_tokens)}")
    weighted = (loss * count for loss, count in zip(mean_losses, num_tokens, strict=True) if count)
    return fsum(weighted) / sum(num_tokens)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        check_count(name, value)
