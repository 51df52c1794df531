"""Documents of unequal length: their statistics, and what a cap on the length cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from hwlessons.counts import check_count


@dataclass(frozen=True)
class LengthStatistics:
    """Lengths of documents in tokens: count, sum, and the nearest-rank median, 95th percentile and maximum."""

    num_documents: int
    num_tokens: int
    median: int
    p95: int
    longest: int


@dataclass(frozen=True)
class TruncationReport:
    """What a cap on the length cuts off.

    Attributes:
        cap: tokens that a document keeps at most.
        num_documents, num_tokens: what there was.
        num_documents_cut: documents longer than the cap.
        num_tokens_cut: tokens behind it, that no model will see.
    """

    cap: int
    num_documents: int
    num_tokens: int
    num_documents_cut: int
    num_tokens_cut: int

    @property
    def cut_documents_fraction(self) -> float:
        """Share of documents that lose something."""
        return self.num_documents_cut / self.num_documents

    @property
    def cut_tokens_fraction(self) -> float:
        """Share of tokens that are lost."""
        return self.num_tokens_cut / self.num_tokens


def percentile(lengths: Sequence[int], percent: int | Fraction) -> int:
    """The nearest-rank percentile: the shortest length that at least `percent` % of the documents do not exceed.

    It is the length of a real document; nothing is interpolated. 50 is the (lower) median, 100 the maximum.

    Raises:
        ValueError: if there is no length, one is no integer of at least 1, or `percent` is not in (0, 100].
    """
    check_lengths(lengths)
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, got {percent!r}")
    return sorted(lengths)[ceil(Fraction(percent) * len(lengths) / 100) - 1]


def length_statistics(lengths: Sequence[int]) -> LengthStatistics:
    """Count, sum, median, 95th percentile and maximum of `lengths`; errors are those of `percentile`."""
    median, p95, longest = (percentile(lengths, percent) for percent in (50, 95, 100))
    return LengthStatistics(len(lengths), sum(lengths), median, p95, longest)


def truncation_report(lengths: Sequence[int], cap: int) -> TruncationReport:
    """What keeping the first `cap` tokens of each document cuts.

    Raises:
        ValueError: if there is no length, or a length or `cap` is no integer of at least 1.
    """
    check_lengths(lengths)
    check_count("cap", cap)
    too_long = [length - cap for length in lengths if length > cap]
    return TruncationReport(cap, len(lengths), sum(lengths), len(too_long), sum(too_long))


def check_lengths(lengths: Sequence[int]) -> None:
    """Raise ValueError unless there are lengths, all integers of at least 1."""
    if not len(lengths):
        raise ValueError("lengths must hold at least one document, got none")
    for index, length in enumerate(lengths):
        check_count(f"length of document {index}", length)


def check_fits(lengths: Sequence[int], window: int, name: str) -> None:
    """Raise ValueError that names the first document longer than `window`: nothing is ever cut silently."""
    check_lengths(lengths)
    check_count(name, window)
    for index, length in enumerate(lengths):
        if length > window:
            raise ValueError(
                f"document {index} must fit into {name} ({window} tokens), got {length} tokens; "
                "cut it yourself and report what was cut, or choose a longer window"
            )
