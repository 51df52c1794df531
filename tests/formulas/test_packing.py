"""Padding and packing: places counted one by one, fewest windows by trying every partition, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwlessons.formulas.packing import (
    batches_in_order,
    bucketed_batches,
    pack_first_fit_decreasing,
    pack_in_order,
    packed_padding_fraction,
    padding_fraction,
)

WINDOW = 12
LENGTHS = st.lists(st.integers(1, WINDOW), min_size=1, max_size=30)
PACKERS = (pack_in_order, pack_first_fit_decreasing)


def rows_of(lengths, batches, width):
    """Every batch drawn as rows of "x" for a token and "." for padding."""
    for batch in batches:
        longest = max(lengths[i] for i in batch) if width is None else width
        yield from ("x" * lengths[i] + "." * (longest - lengths[i]) for i in batch)


def fewest_windows(lengths, window):
    """By trying every way to put each document into a window that is open, or into a new one."""

    def search(index, free):
        if index == len(lengths):
            return len(free)
        found = [search(index + 1, (*free, window - lengths[index]))]
        for place, room in enumerate(free):
            if room >= lengths[index]:
                found.append(search(index + 1, (*free[:place], room - lengths[index], *free[place + 1 :])))
        return min(found)

    return search(0, ())


@given(LENGTHS, st.integers(1, 7), st.sampled_from([None, WINDOW]))
def test_padding_by_drawing_every_place(lengths, batch_size, width):
    for batches in (batches_in_order(len(lengths), batch_size), bucketed_batches(lengths, batch_size)):
        drawn = "".join(rows_of(lengths, batches, width))
        assert padding_fraction(lengths, batches, width) == pytest.approx(drawn.count(".") / len(drawn), abs=1e-12)


@given(LENGTHS, st.integers(1, 7))
def test_batches_hold_every_document_once(lengths, batch_size):
    in_order, bucketed = batches_in_order(len(lengths), batch_size), bucketed_batches(lengths, batch_size)
    assert list(chain(*in_order)) == list(range(len(lengths)))
    assert sorted(chain(*bucketed)) == list(range(len(lengths)))
    assert [lengths[i] for i in chain(*bucketed)] == sorted(lengths)
    for batches in (in_order, bucketed):
        assert all(len(batch) == batch_size for batch in batches[:-1]) and 1 <= len(batches[-1]) <= batch_size


@given(LENGTHS, st.integers(1, 7))
def test_bucketing_never_pads_more_places(lengths, batch_size):
    # both waste sum(width * rows) - tokens, and the sorted order has the least sum of maxima of full batches
    if len(lengths) % batch_size == 0:
        bucketed = padding_fraction(lengths, bucketed_batches(lengths, batch_size))
        assert bucketed <= padding_fraction(lengths, batches_in_order(len(lengths), batch_size)) + 1e-12


@pytest.mark.parametrize("pack", PACKERS)
@given(lengths=LENGTHS)
def test_packing_keeps_every_document_whole_and_once(pack, lengths):
    bins = pack(lengths, WINDOW)
    assert sorted(chain(*bins)) == list(range(len(lengths)))
    assert all(0 < sum(lengths[i] for i in indices) <= WINDOW for indices in bins)
    drawn = "".join("".join("x" * lengths[i] for i in indices).ljust(WINDOW, ".") for indices in bins)
    assert packed_padding_fraction(lengths, bins, WINDOW) == pytest.approx(drawn.count(".") / len(drawn), abs=1e-12)


@given(lengths=LENGTHS)
def test_packing_in_order_keeps_the_order_and_opens_no_window_too_early(lengths):
    bins = pack_in_order(lengths, WINDOW)
    assert list(chain(*bins)) == list(range(len(lengths)))
    for indices, following in pairwise(bins):
        assert sum(lengths[i] for i in indices) + lengths[following[0]] > WINDOW


@given(lengths=st.lists(st.integers(1, WINDOW), min_size=1, max_size=8))
def test_first_fit_decreasing_is_near_the_fewest_windows(lengths):
    fewest = fewest_windows(lengths, WINDOW)
    assert fewest <= len(pack_first_fit_decreasing(lengths, WINDOW)) <= Fraction(11, 9) * fewest + Fraction(6, 9)
    assert fewest <= len(pack_in_order(lengths, WINDOW)) <= max(1, 2 * fewest - 1)


@given(lengths=LENGTHS)
def test_first_fit_decreasing_window_by_window(lengths):
    # the same packing told differently: each window in turn takes the longest document left that still fits
    left, bins = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)), []
    while left:
        free, taken = WINDOW, []
        for index in left:
            if lengths[index] <= free:
                taken.append(index)
                free -= lengths[index]
        bins.append(taken)
        left = [index for index in left if index not in taken]
    assert pack_first_fit_decreasing(lengths, WINDOW) == bins


def test_packing_by_hand():
    lengths = [5, 7, 3, 2, 6]
    assert pack_in_order(lengths, 10) == [[0], [1, 2], [3, 4]]
    assert pack_first_fit_decreasing(lengths, 10) == [[1, 2], [4, 3], [0]]
    assert pack_first_fit_decreasing([5, 5, 5, 5], 10) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("pack", PACKERS)
def test_a_document_longer_than_the_window_is_refused(pack):
    with pytest.raises(ValueError, match=r"document 2 must fit into window \(10 tokens\), got 11 tokens"):
        pack([4, 10, 11, 12], 10)
    for bad in (0, 2.5, True):
        with pytest.raises(ValueError, match=f"window must be an integer of at least 1, got {bad}"):
            pack([4], bad)


def test_bad_input():
    with pytest.raises(ValueError, match=r"document 0 must fit into pad_to \(3 tokens\), got 4"):
        padding_fraction([4], [[0]], 3)
    for batches in ([], [[0], []]):
        with pytest.raises(ValueError, match="batches must each hold a document"):
            padding_fraction([4], batches)
    with pytest.raises(ValueError, match="bins must hold at most 10 tokens each, got 11"):
        packed_padding_fraction([5, 6], [[0, 1]], 10)
    with pytest.raises(ValueError, match="bins must hold at most 10 tokens each, got no bin"):
        packed_padding_fraction([5, 6], [], 10)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1, got 0"):
        bucketed_batches([5, 6], 0)
    with pytest.raises(ValueError, match="lengths must hold at least one document, got none"):
        bucketed_batches([], 1)
    with pytest.raises(ValueError, match="num_documents must be an integer of at least 1, got 0"):
        batches_in_order(0, 1)
