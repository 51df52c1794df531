"""Statistics of lengths: numpy's percentiles, documents really cut, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwlessons.formulas.lengths import check_fits, length_statistics, percentile, truncation_report

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 100))
def test_percentiles_are_numpys_nearest_rank(lengths, percent):
    assert percentile(lengths, percent) == np.percentile(lengths, percent, method="inverted_cdf")


@given(LENGTHS)
def test_a_percentile_is_the_shortest_length_that_covers_its_share(lengths):
    for percent in (1, 50, 95, 100):
        found = percentile(lengths, percent)
        enough = [n for n in lengths if 100 * sum(other <= n for other in lengths) >= percent * len(lengths)]
        assert found == min(enough)


def test_statistics_by_hand():
    found = length_statistics([7, 1, 3, 100])
    assert (found.num_documents, found.num_tokens, found.median, found.p95, found.longest) == (4, 111, 3, 100, 100)
    assert length_statistics(list(range(1, 101))).p95 == 95


@given(LENGTHS, st.integers(1, 300))
def test_truncation_by_cutting(lengths, cap):
    documents = ["x" * length for length in lengths]
    kept = [document[:cap] for document in documents]
    report = truncation_report(lengths, cap)
    assert report.num_tokens - report.num_tokens_cut == sum(map(len, kept))
    assert report.num_documents_cut == sum(k != d for k, d in zip(kept, documents, strict=True))
    assert report.cut_tokens_fraction == pytest.approx(1 - sum(map(len, kept)) / sum(map(len, documents)), abs=1e-12)
    assert report.cut_documents_fraction == report.num_documents_cut / len(documents)


def test_bad_input():
    for bad in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=f"length of document 1 must be an integer of at least 1, got {bad}"):
            length_statistics([3, bad])
        with pytest.raises(ValueError, match=f"cap must be an integer of at least 1, got {bad}"):
            truncation_report([3], bad)
    for percent in (0, 101, -1):
        with pytest.raises(ValueError, match=f"percent must be above 0 and at most 100, got {percent}"):
            percentile([1], percent)
    with pytest.raises(ValueError, match="lengths must hold at least one document, got none"):
        percentile([], 50)
    with pytest.raises(ValueError, match=r"document 1 must fit into window \(8 tokens\), got 9 tokens; cut it"):
        check_fits([8, 9, 10], 8, "window")
