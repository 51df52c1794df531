"""How far a batch's gradient lies from the gradient of all examples, and the batch at which the two are as long.

Following McCandlish et al. 2018 (arXiv:1812.06162), Section 2.2 and Appendix A.1. Gradients are means over examples;
their squared lengths have the unit (loss / parameter)².
"""

from __future__ import annotations

from dataclasses import dataclass

from hwlessons.counts import check_count


@dataclass(frozen=True)
class NoiseEstimate:
    """Estimated from gradients at two batch sizes; both are unbiased, so either can be negative by chance.

    Attributes:
        squared_gradient_norm: |G|², of the gradient without noise.
        noise_trace: tr(Σ), the mean squared distance of one example's gradient from G.
    """

    squared_gradient_norm: float
    noise_trace: float

    @property
    def noise_scale(self) -> float:
        """The simple noise scale tr(Σ) / |G|², in examples; a ratio of estimates, not itself unbiased."""
        return noise_scale(self.noise_trace, self.squared_gradient_norm)


def noise_scale(noise_trace: float, squared_gradient_norm: float) -> float:
    """The simple noise scale tr(Σ) / |G|², in examples: the batch whose expected noise is as long as the gradient.

    Raises:
        ValueError: if the squared norm is not above 0 or the trace below 0.
    """
    if not squared_gradient_norm > 0:
        raise ValueError(f"squared_gradient_norm must be above 0, got {squared_gradient_norm!r}: average more batches")
    if not noise_trace >= 0:
        raise ValueError(f"noise_trace must be at least 0, got {noise_trace!r}: average more batches")
    return noise_trace / squared_gradient_norm


def expected_squared_error(example_variance: float, batch: int, num_examples: int | None = None) -> float:
    """Expected |g_b - g|² of a batch of `batch` examples: variance / b.

    Args:
        example_variance: mean of |g_i - g|² over single examples.
        batch: b, drawn independently; without replacement where `num_examples` is given.
        num_examples: N, how many examples there are: then variance / b · (N - b) / (N - 1), and 0 for all of them.

    Raises:
        ValueError: for a negative variance, a count that is no integer of at least 1, or a batch above `num_examples`.
    """
    if not example_variance >= 0:
        raise ValueError(f"example_variance must be at least 0, got {example_variance!r}")
    check_count("batch", batch)
    if num_examples is None:
        return example_variance / batch
    check_count("num_examples", num_examples)
    if batch > num_examples:
        raise ValueError(f"batch must be at most num_examples ({num_examples}), got {batch}")
    return example_variance / batch * ((num_examples - batch) / (num_examples - 1)) if num_examples > 1 else 0.0


def estimate_noise(
    small_batch: int, small_squared_norm: float, large_batch: int, large_squared_norm: float
) -> NoiseEstimate:
    """|G|² and tr(Σ) from the mean squared gradient norms of two batch sizes, E|g_b|² = |G|² + tr(Σ) / b.

    A data-parallel run has both at hand: a device's gradient before the all-reduce, and the averaged one after it.

    Raises:
        ValueError: for a count that is no integer of at least 1, unless `small_batch` is below `large_batch`, or a
            negative norm.
    """
    check_count("small_batch", small_batch)
    check_count("large_batch", large_batch)
    if small_batch >= large_batch:
        raise ValueError(f"small_batch must be below large_batch ({large_batch}), got {small_batch}")
    for name, value in (("small_squared_norm", small_squared_norm), ("large_squared_norm", large_squared_norm)):
        if not value >= 0:
            raise ValueError(f"{name} must be at least 0, got {value!r}")
    weighted = large_batch * large_squared_norm - small_batch * small_squared_norm
    return NoiseEstimate(
        squared_gradient_norm=weighted / (large_batch - small_batch),
        noise_trace=(small_squared_norm - large_squared_norm) / (1 / small_batch - 1 / large_batch),
    )
