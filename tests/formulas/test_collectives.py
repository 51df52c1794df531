"""Collectives: nccl-tests' factors, and a ring that is played value by value."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hwlessons.formulas.collectives import (
    COLLECTIVES,
    bus_bandwidth_factor,
    bytes_sent_per_rank,
    collective_seconds,
    num_ring_rounds,
)
from hwlessons.formulas.ring_simulator import simulate_ring_all_reduce


def test_published_factors(published):
    case = published("busbw_factors")
    case.check([float(bus_bandwidth_factor(op, case.inputs["ranks"])) for op in case.inputs["ops"]])


def test_published_bytes_of_an_all_reduce(published):
    case = published("ring_allreduce")
    num_bytes = int(case.inputs["bytes"])
    case.check([float(bytes_sent_per_rank("all_reduce", num_bytes, d)) for d in case.inputs["ranks"]])


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("num_values", [84, 5, 1])
def test_the_ring_sums_right_and_sends_what_the_formula_says(num_ranks, num_values):
    ranks = [[float(100 * rank + i) for i in range(num_values)] for rank in range(num_ranks)]
    run = simulate_ring_all_reduce(ranks)
    assert run.values == (tuple(sum(column) for column in zip(*ranks, strict=True)),) * num_ranks
    assert run.num_rounds == num_ring_rounds("all_reduce", num_ranks)
    predicted = bytes_sent_per_rank("all_reduce", num_values, num_ranks)
    assert sum(run.num_sent) == num_ranks * predicted
    if num_values % num_ranks == 0:
        assert set(run.num_sent) == {predicted}


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    for d in range(1, 20):
        parts = bus_bandwidth_factor("reduce_scatter", d) + bus_bandwidth_factor("all_gather", d)
        assert bus_bandwidth_factor("all_reduce", d) == parts
    assert {bus_bandwidth_factor(op, 1) for op in COLLECTIVES} == {0}


def test_time_is_bytes_over_rate_plus_rounds_of_latency():
    assert collective_seconds("all_reduce", 8 * 10**9, 4, bytes_per_second=1e9) == 12.0
    with_latency = collective_seconds("all_gather", 0, 5, bytes_per_second=1e9, latency_seconds=0.5)
    assert with_latency == 2.0
    assert num_ring_rounds("broadcast", 8) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_to_some", 8, 2), "collective must be one of all_reduce, .*, got 'all_to_some'"),
        (("all_reduce", -1, 2), "num_bytes must be .* at least 0, got -1"),
        (("all_reduce", 1.5, 2), "num_bytes must be .* at least 0, got 1.5"),
        (("all_reduce", 8, 0), "num_ranks must be an integer of at least 1, got 0"),
        (("all_reduce", 8, True), "num_ranks must be an integer of at least 1, got True"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        bytes_sent_per_rank(*arguments)


def test_bad_links_and_rings():
    with pytest.raises(ValueError, match="bytes_per_second must be positive, got 0"):
        collective_seconds("all_reduce", Fraction(1), 2, bytes_per_second=0)
    with pytest.raises(ValueError, match="latency_seconds must be at least 0, got -1"):
        collective_seconds("all_reduce", 1, 2, bytes_per_second=1.0, latency_seconds=-1)
    with pytest.raises(ValueError, match=r"equally long sequences, got lengths \[1, 2\]"):
        simulate_ring_all_reduce([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="collective must be one of"):
        num_ring_rounds("send", 2)
