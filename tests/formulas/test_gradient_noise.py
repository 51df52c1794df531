"""Noise of a batch's gradient: every possible batch of a few examples, written out, and what is refused."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from hwlessons.formulas.gradient_noise import estimate_noise, expected_squared_error, noise_scale

N = 6
GRADIENTS = np.random.default_rng(0).normal(1, 2, size=(N, 3))
G = GRADIENTS.mean(0)
VARIANCE = ((GRADIENTS - G) ** 2).sum(1).mean()


def mean_over(batches, value):
    return np.mean([value(GRADIENTS[list(batch)].mean(0)) for batch in batches])


@pytest.mark.parametrize("b", range(1, N + 1))
def test_error_over_every_batch_without_replacement(b):
    found = mean_over(combinations(range(N), b), lambda g: ((g - G) ** 2).sum())
    assert expected_squared_error(VARIANCE, b, N) == pytest.approx(found, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("b", range(1, 5))
def test_error_over_every_batch_with_replacement(b):
    found = mean_over(product(range(N), repeat=b), lambda g: ((g - G) ** 2).sum())
    assert expected_squared_error(VARIANCE, b) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize(("small", "large"), [(1, 2), (1, 4), (2, 3)])
def test_estimates_over_every_batch_are_the_truth(small, large):
    norms = [mean_over(product(range(N), repeat=b), lambda g: (g**2).sum()) for b in (small, large)]
    found = estimate_noise(small, norms[0], large, norms[1])
    assert found.noise_trace == pytest.approx(VARIANCE, rel=1e-10)
    assert found.squared_gradient_norm == pytest.approx((G**2).sum(), rel=1e-10)
    assert found.noise_scale == pytest.approx(VARIANCE / (G**2).sum(), rel=1e-10)


def test_at_the_noise_scale_noise_is_as_long_as_the_gradient():
    assert noise_scale(12.0, 3.0) == 4.0
    assert expected_squared_error(12.0, 4) == 3.0
    assert expected_squared_error(5.0, 1, 1) == 0.0  # one example is all of them


def test_bad_input():
    with pytest.raises(ValueError, match=r"squared_gradient_norm must be above 0, got -0.5: average more batches"):
        noise_scale(1.0, -0.5)
    with pytest.raises(ValueError, match=r"squared_gradient_norm must be above 0, got 0.0: average more batches"):
        noise_scale(1.0, 0.0)
    with pytest.raises(ValueError, match=r"noise_trace must be at least 0, got -1.0: average more batches"):
        estimate_noise(1, 1.0, 2, 1.5).noise_scale  # noqa: B018
    with pytest.raises(ValueError, match="example_variance must be at least 0, got nan"):
        expected_squared_error(float("nan"), 1)
    with pytest.raises(ValueError, match=r"batch must be at most num_examples \(6\), got 7"):
        expected_squared_error(1.0, 7, 6)
    with pytest.raises(ValueError, match=r"small_batch must be below large_batch \(2\), got 2"):
        estimate_noise(2, 1.0, 2, 1.0)
    with pytest.raises(ValueError, match="large_squared_norm must be at least 0, got -1"):
        estimate_noise(1, 1.0, 2, -1.0)
    for bad in (0, 2.0, True):
        for name, function, arguments in (
            ("batch", expected_squared_error, (1.0, bad)),
            ("num_examples", expected_squared_error, (1.0, 1, bad)),
            ("small_batch", estimate_noise, (bad, 1.0, 2, 1.0)),
            ("large_batch", estimate_noise, (1, 1.0, bad, 1.0)),
        ):
            with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {bad}"):
                function(*arguments)
