"""Documents of unequal length as batches: what padding wastes, and packing into windows without cutting any."""

from __future__ import annotations

from collections.abc import Sequence

from hwlessons.counts import check_count
from hwlessons.formulas.lengths import check_fits, check_lengths

Batches = Sequence[Sequence[int]]


def batches_in_order(num_documents: int, batch_size: int) -> list[list[int]]:
    """Indices of `batch_size` documents at a time, in their order; the last batch may be smaller.

    Raises:
        ValueError: unless both are integers of at least 1.
    """
    check_count("num_documents", num_documents)
    check_count("batch_size", batch_size)
    return [list(range(start, min(start + batch_size, num_documents))) for start in range(0, num_documents, batch_size)]


def bucketed_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Batches of documents of similar length: the indices sorted by length, `batch_size` at a time.

    A loader shuffles the *batches* of each epoch; documents of one batch stay together, the price of bucketing.

    Raises:
        ValueError: as `batches_in_order`, and for lengths that are no integers of at least 1.
    """
    check_lengths(lengths)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [[order[place] for place in places] for places in batches_in_order(len(lengths), batch_size)]


def padding_fraction(lengths: Sequence[int], batches: Batches, pad_to: int | None = None) -> float:
    """Share of a batch's places that hold padding, over all batches: 1 - tokens / sum(rows * width).

    Args:
        lengths: tokens of each document.
        batches: indices of the documents in each batch, one document a row.
        pad_to: width of every batch; by default the longest document of each.

    Raises:
        ValueError: for a length that is no integer of at least 1, no batch, an empty one, or a document longer than
            `pad_to`.
    """
    check_lengths(lengths)
    if not batches or not all(batches):
        raise ValueError(f"batches must each hold a document, got {list(batches)}")
    if pad_to is not None:
        check_fits(lengths, pad_to, "pad_to")
    width = [max(lengths[i] for i in batch) if pad_to is None else pad_to for batch in batches]
    num_places = sum(len(batch) * w for batch, w in zip(batches, width, strict=True))
    return 1 - sum(lengths[i] for batch in batches for i in batch) / num_places


def packed_padding_fraction(lengths: Sequence[int], bins: Batches, window: int) -> float:
    """Share of places that hold padding when each bin of documents is one row: 1 - tokens / (bins * window).

    Raises:
        ValueError: for no bin, or a bin whose documents do not fit into `window`.
    """
    check_fits(lengths, window, "window")
    totals = [sum(lengths[i] for i in indices) for indices in bins]
    if not totals or max(totals) > window:
        raise ValueError(f"bins must hold at most {window} tokens each, got {max(totals, default='no bin')}")
    return 1 - sum(totals) / (len(bins) * window)


def pack_in_order(lengths: Sequence[int], window: int) -> list[list[int]]:
    """Documents into windows in their order (next-fit): one that no longer fits begins the next window.

    Boundaries are kept: every document lies whole in one window, so that it can be told from its neighbours.

    Returns:
        For each window the indices of its documents.

    Raises:
        ValueError: if a length is no integer of at least 1, or a document is longer than `window`.
    """
    check_fits(lengths, window, "window")
    bins: list[list[int]] = []
    free = 0
    for index, length in enumerate(lengths):
        if length > free:
            bins.append([])
            free = window
        bins[-1].append(index)
        free -= length
    return bins


def pack_first_fit_decreasing(lengths: Sequence[int], window: int) -> list[list[int]]:
    """The longest document first, each into the first window that has room (first-fit decreasing).

    At most 11/9 of the fewest possible windows and 6/9 of one (Dósa 2007, Theorem 1). Returns and errors are those of
    `pack_in_order`; documents of equal length keep their order.
    """
    check_fits(lengths, window, "window")
    bins: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        place = next((n for n, room in enumerate(free) if room >= lengths[index]), len(bins))
        if place == len(bins):
            bins.append([])
            free.append(window)
        bins[place].append(index)
        free[place] -= lengths[index]
    return bins
