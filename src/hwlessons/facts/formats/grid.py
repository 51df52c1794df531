"""The numbers of a format as points on a line: all of them, those next to a number, and how far apart they are."""

from __future__ import annotations

import math
from bisect import bisect_right

from hwlessons.facts.formats.catalogue import find_format
from hwlessons.facts.formats.codes import checked_number, decode, encode, floor_log2
from hwlessons.facts.formats.number_format import NumberFormat


def finite_values(format: NumberFormat | str) -> list[float]:
    """Every finite number of the format once, ascending; 0 stands for both zeros.

    Raises:
        ValueError: if the format is unknown or has more than 16 bits, too many to list.
    """
    fmt = find_format(format)
    if fmt.bits > 16:
        raise ValueError(f"only formats of at most 16 bits have their values listed, got {fmt.name} with {fmt.bits}")
    values = (decode(code, fmt) for code in range(fmt.num_codes))
    return sorted({value + 0.0 for value in values if math.isfinite(value)})


def neighbours(value: float, format: NumberFormat | str) -> tuple[float | None, float | None]:
    """The largest number of the format below `value`, and the smallest above it.

    Infinity counts as a number where the format has it. None stands where there is none: above the largest number of a
    format without infinity, below the smallest, and on both sides of a NaN.

    Raises:
        ValueError: if `value` is no number, or the format is unknown.
    """
    fmt, value = find_format(format), checked_number(value)
    if math.isnan(value):
        return None, None
    place = _place_at_or_below(value, fmt)
    at_or_below = _number_at(place, fmt)
    return (_number_at(place - 1, fmt) if at_or_below == value else at_or_below), _number_at(place + 1, fmt)


def spacing(value: float, format: NumberFormat | str) -> float | None:
    """How far apart the numbers of the format are at `value`: the step away from zero, as `numpy.spacing` has it.

    None where there is none: beyond the largest number and at a NaN.

    Raises:
        ValueError: if `value` is no number, or the format is unknown.
    """
    fmt, value = find_format(format), checked_number(value)
    if not abs(value) <= fmt.max:
        return None
    if fmt.codebook:
        below, above = neighbours(value, fmt)
        is_held = value in fmt.codebook
        low = value if is_held and value >= 0 else below
        high = value if is_held and value < 0 else above
        return None if low is None or high is None else high - low
    exponent = max(floor_log2(abs(value)), fmt.min_exponent)
    return 2.0 ** (exponent - fmt.fraction_bits)


def _number_at(place: int, fmt: NumberFormat) -> float | None:
    """The number at a place of the line; places count from 0 (a sign mirrors them) or from the smallest number."""
    if fmt.codebook:
        values = sorted(set(fmt.codebook))
        return values[place] if 0 <= place < len(values) else None
    if abs(place) > fmt.max_code + fmt.has_infinity or (place < 0 and not fmt.has_sign):
        return None
    return math.copysign(decode(abs(place), fmt), place)


def _place_at_or_below(value: float, fmt: NumberFormat) -> int:
    if fmt.codebook:
        return bisect_right(sorted(set(fmt.codebook)), value) - 1
    if value < 0 and not fmt.has_sign:
        return -1
    magnitude = encode(abs(value), fmt, overflow="nonsaturating", rounding="toward_zero")
    place = min(magnitude, fmt.max_code + fmt.has_infinity)  # e4m3 has NaN where others have infinity
    place = -place if value < 0 else place
    number = _number_at(place, fmt)
    return place - 1 if number is None or number > value else place
