"""Ranks share the same global batches whatever their number, every row once, and go on where a run stopped."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwlessons.parallel.rank_rows import RankRows


def steps(num_rows: int, num_ranks: int, num_steps: int, **options: object) -> list[list[list[list[int]]]]:
    """For each optimizer step, each rank's microbatches."""
    options = {"global_batch": 8, "microbatch": 2} | options
    ranks = [RankRows(num_rows, num_ranks=num_ranks, rank=rank, **options) for rank in range(num_ranks)]  # type: ignore[arg-type]
    return [[next(rank) for rank in ranks] for _ in range(num_steps)]


def flat(step: list[list[list[int]]]) -> list[int]:
    return sorted(row for rank in step for microbatch in rank for row in microbatch)


@given(st.integers(8, 60), st.sampled_from([2, 4]), st.integers(0, 5))
def test_global_batches_do_not_depend_on_the_number_of_ranks(num_rows: int, num_ranks: int, seed: int) -> None:
    full_steps = num_rows // 8
    alone, shared = (steps(num_rows, d, full_steps, seed=seed) for d in (1, num_ranks))
    assert [flat(step) for step in alone] == [flat(step) for step in shared]
    assert all(len(rank) == 4 // num_ranks for step in shared for rank in step)


@pytest.mark.parametrize(("drop_last", "counts"), [(False, {1: 10, 2: 1}), (True, {1: 10})])
def test_rows_that_ranks_do_not_divide(drop_last: bool, counts: dict[int, int]) -> None:
    epoch = steps(11, 2, 2, drop_last=drop_last)
    seen = Counter(row for step in epoch for row in flat(step))
    assert Counter(seen.values()) == counts
    assert [len(flat(step)) for step in epoch] == ([8, 2] if drop_last else [8, 4])


def test_each_epoch_has_an_order_of_its_own() -> None:
    first, second = steps(16, 2, 4)[:2], steps(16, 2, 4)[2:]
    assert sorted(flat(first[0]) + flat(first[1])) == sorted(flat(second[0]) + flat(second[1])) == list(range(16))
    assert first != second
    assert steps(16, 2, 4) == first + second


@given(st.integers(8, 40), st.integers(0, 9), st.sampled_from([(1, 2), (2, 4), (4, 1), (2, 1)]))
def test_going_on_with_other_ranks(num_rows: int, num_steps: int, ranks: tuple[int, int]) -> None:
    before, after = ranks
    one = RankRows(num_rows, num_ranks=before, rank=0, global_batch=8, microbatch=2)
    for _ in range(num_steps):
        next(one)
    going_on = [RankRows(num_rows, num_ranks=after, rank=r, global_batch=8, microbatch=2) for r in range(after)]
    for rank in going_on:
        rank.go_to(one.epoch, one.position)
    assert {(rank.epoch, rank.position) for rank in going_on} == {(one.epoch, one.position)} or num_rows % 4
    alone = RankRows(num_rows, num_ranks=1, rank=0, global_batch=8, microbatch=2)
    alone.go_to(going_on[0].epoch, going_on[0].position)
    if alone.position + 8 <= num_rows:  # the last global batch of an epoch depends on what the sampler repeats
        assert flat([next(rank) for rank in going_on]) == flat([next(alone)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_ranks": 4, "global_batch": 2}, "global_batch must have a row for each of 4 ranks, got 2"),
        ({"num_ranks": 2, "global_batch": 8, "microbatch": 3}, r"must divide global_batch \(8\), got 3 × 2 = 6"),
        ({"global_batch": 16}, r"global_batch must be at most the number of rows \(11\), got 16"),
    ],
)
def test_batches_that_ranks_cannot_share(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankRows(11, **{"num_ranks": 1, "rank": 0, "global_batch": 8, "microbatch": 2} | options)
