"""Batch arithmetic: by hand, by counting in a loop, by one mean over all tokens, and what is refused."""

from __future__ import annotations

import random
from itertools import chain, product
from statistics import fmean

import pytest

from hwlessons.formulas.batching import (
    accumulation_steps_for,
    global_batch,
    optimizer_steps_per_epoch,
    token_mean,
)


def test_global_batch_counts_examples():
    assert global_batch(2, 8) == 16
    for b, a, d in product(range(1, 5), repeat=3):
        examples = [(rank, step, i) for rank in range(d) for step in range(a) for i in range(b)]
        assert global_batch(b, a, d) == len(examples)
        assert accumulation_steps_for(len(examples), b, d) == a


def test_unequal_tokens(published):
    case = published("accum_unequal_tokens")
    losses, tokens = case.inputs["micro_mean_losses"], case.inputs["tokens"]
    case.check({"mean_of_means": token_mean(losses, [1] * len(losses)), "token_mean": token_mean(losses, tokens)})


def test_token_mean_is_one_mean_over_all_tokens():
    draw = random.Random(0)
    parts = [[draw.random() for _ in range(n)] for n in (1, 7, 30, 2)]
    means = [fmean(part) for part in parts]
    assert token_mean(means, [len(part) for part in parts]) == pytest.approx(fmean(chain(*parts)), rel=1e-15)
    assert token_mean([2.0, float("nan")], [5, 0]) == 2.0  # the mean over no token is not a number, and has no weight


def test_every_microbatch_is_in_a_step():
    for n, a in product(range(1, 12), range(1, 6)):
        groups = [range(start, min(start + a, n)) for start in range(0, n, a)]
        assert optimizer_steps_per_epoch(n, a) == len(groups)


def test_bad_input():
    with pytest.raises(ValueError, match=r"must divide global_batch \(16\), got 3 × 1 = 3; .*: 1, 2, 4, 8, 16$"):
        accumulation_steps_for(16, 3)
    with pytest.raises(ValueError, match=r"got 4 × 8 = 32; microbatches that do: 1, 2$"):
        accumulation_steps_for(16, 4, 8)
    with pytest.raises(ValueError, match=r"got 1 × 3 = 3; no microbatch does$"):
        accumulation_steps_for(16, 1, 3)
    for bad in (0, -1, 2.0, True):
        for name in ("microbatch", "accumulation_steps", "data_parallel_size"):
            counts = {"microbatch": 2, "accumulation_steps": 2, "data_parallel_size": 2} | {name: bad}
            with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {bad}"):
                global_batch(**counts)
        with pytest.raises(ValueError, match=f"accumulation_steps must be an integer of at least 1, got {bad}"):
            optimizer_steps_per_epoch(4, bad)
    with pytest.raises(ValueError, match=r"at least one supervised token, got \[0, 0\]"):
        token_mean([1.0, 2.0], [0, 0])
    with pytest.raises(ValueError, match=r"one entry per loss \(2\), got 1"):
        token_mean([1.0, 2.0], [3])
    with pytest.raises(ValueError, match="integers of at least 0, got -1"):
        token_mean([1.0], [-1])
