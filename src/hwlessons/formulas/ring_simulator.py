"""A SIMULATOR that counts: a ring all-reduce played on lists of numbers. It communicates nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class RingRun:
    """What a simulated ring left and sent.

    Attributes:
        values: what every rank holds at the end.
        num_sent: values that every rank has sent.
        num_rounds: rounds in which all ranks sent at the same time.
    """

    values: tuple[tuple[float, ...], ...]
    num_sent: tuple[int, ...]
    num_rounds: int


def simulate_ring_all_reduce(ranks: Sequence[Sequence[float]]) -> RingRun:
    """Sum `ranks` elementwise on a ring: a reduce-scatter, then an all-gather, one part to the right neighbour a round.

    Args:
        ranks: one sequence of values for each rank, all equally long; the parts differ by at most one value.

    Raises:
        ValueError: if there is no rank, or the lengths differ.
    """
    held = [list(values) for values in ranks]
    if not held or len({len(values) for values in held}) != 1:
        raise ValueError(f"ranks must hold equally long sequences, got lengths {[len(v) for v in held]}")
    d, num_values = len(held), len(held[0])
    ends = list(accumulate([num_values // d + (i < num_values % d) for i in range(d)], initial=0))
    parts = [slice(ends[i], ends[i + 1]) for i in range(d)]
    num_sent, num_rounds = [0] * d, 0
    for first, is_sum in ((0, True), (1, False)):  # reduce-scatter, then all-gather of the finished parts
        for shift in range(d - 1):
            messages = [(rank, parts[(rank + first - shift) % d]) for rank in range(d)]
            arriving = [held[rank][part] for rank, part in messages]
            for (rank, part), values in zip(messages, arriving, strict=True):
                right = held[(rank + 1) % d]
                right[part] = [a + b for a, b in zip(right[part], values, strict=True)] if is_sum else values
                num_sent[rank] += len(values)
            num_rounds += 1
    return RingRun(tuple(map(tuple, held)), tuple(num_sent), num_rounds)
