"""Collectives on a ring: what each rank sends, and how long that takes on a link.

Bandwidth-optimal algorithms send these bytes; libraries may choose trees or reduction inside a switch instead, which
send other amounts. Bytes follow nccl-tests: the size of an all-gather or reduce-scatter is that of the whole tensor,
not of one rank's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from hwlessons.counts import check_count

_FACTORS: Mapping[str, Callable[[int], Fraction]] = {
    "all_reduce": lambda d: Fraction(2 * (d - 1), d),
    "reduce_scatter": lambda d: Fraction(d - 1, d),
    "all_gather": lambda d: Fraction(d - 1, d),
    "broadcast": lambda d: Fraction(min(d - 1, 1)),
}
COLLECTIVES = tuple(_FACTORS)


def bus_bandwidth_factor(collective: str, num_ranks: int) -> Fraction:
    """Bytes that a rank sends for each byte of the tensor, exactly; 0 on one rank.

    With d ranks: all_reduce 2(d-1)/d, reduce_scatter and all_gather (d-1)/d, broadcast 1 (every rank passes the whole
    tensor on; the last one in the chain sends nothing).

    Raises:
        ValueError: for an unknown collective, or a number of ranks below 1.

    Source: nccl-tests, doc/PERFORMANCE.md, section "Bus bandwidth" (summary of factors).
    """
    if collective not in _FACTORS:
        raise ValueError(f"collective must be one of {', '.join(COLLECTIVES)}, got {collective!r}")
    return _FACTORS[collective](_check_ranks(num_ranks))


def bytes_sent_per_rank(collective: str, num_bytes: int | Fraction, num_ranks: int) -> Fraction:
    """Bytes that each rank of a ring sends for a tensor of `num_bytes`; it receives as many.

    Where d does not divide the tensor, ranks differ by a few values; this is their mean. For a broadcast it is what
    every rank but the last sends.

    Raises:
        ValueError: for an unknown collective, a number of ranks below 1, or a negative number of bytes.
    """
    if isinstance(num_bytes, bool) or not isinstance(num_bytes, int | Fraction) or num_bytes < 0:
        raise ValueError(f"num_bytes must be a whole number or a fraction of at least 0, got {num_bytes!r}")
    return bus_bandwidth_factor(collective, num_ranks) * num_bytes


def num_ring_rounds(collective: str, num_ranks: int) -> int:
    """Rounds in which every rank sends one part to its neighbour: 2(d-1) for an all-reduce, d-1 for the others.

    Raises:
        ValueError: for an unknown collective or a number of ranks below 1.
    """
    bus_bandwidth_factor(collective, num_ranks)
    return (2 if collective == "all_reduce" else 1) * (num_ranks - 1)


def collective_seconds(
    collective: str,
    num_bytes: int | Fraction,
    num_ranks: int,
    *,
    bytes_per_second: float,
    latency_seconds: float = 0.0,
) -> float:
    """Seconds that a ring needs at least: bytes sent over the link's rate in one direction, plus a latency per round.

    Args:
        collective: one of `COLLECTIVES`.
        num_bytes: size of the whole tensor.
        num_ranks: ranks on the ring, all on links of one rate.
        bytes_per_second: the link's rate in ONE direction; a ring sends and receives at the same time.
        latency_seconds: of one round.

    Raises:
        ValueError: for an unknown collective, a number of ranks below 1, negative bytes or latency, or a rate that is
            not positive.
    """
    if not bytes_per_second > 0:
        raise ValueError(f"bytes_per_second must be positive, got {bytes_per_second!r}")
    if not latency_seconds >= 0:
        raise ValueError(f"latency_seconds must be at least 0, got {latency_seconds!r}")
    sent = bytes_sent_per_rank(collective, num_bytes, num_ranks)
    return float(sent) / bytes_per_second + num_ring_rounds(collective, num_ranks) * latency_seconds


def _check_ranks(num_ranks: int) -> int:
    check_count("num_ranks", num_ranks)
    return num_ranks
