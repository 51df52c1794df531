"""A set of codes that is too large to be written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class CodeSet(Sequence[int]):
    """The codes of a few ranges, one range after the other: a read-only sequence of integers that takes no memory."""

    def __init__(self, *ranges: range) -> None:
        self.ranges = tuple(codes for codes in ranges if codes)

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        position = index + len(self) if index < 0 else index
        for codes in self.ranges:
            if 0 <= position < len(codes):
                return codes[position]
            position -= len(codes)
        raise IndexError(f"index {index} is outside of {len(self)} codes")

    def __contains__(self, code: object) -> bool:
        return any(code in codes for codes in self.ranges)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, CodeSet):
            return self.ranges == other.ranges
        return isinstance(other, Sequence) and len(other) == len(self) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        written = (hex(codes[0]) if len(codes) == 1 else f"{codes[0]:#x}–{codes[-1]:#x}" for codes in self.ranges)
        return f"CodeSet({', '.join(written)})"
