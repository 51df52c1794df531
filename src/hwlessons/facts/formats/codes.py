"""One number to its code and back, in arithmetic that can be followed by hand (and copied into JavaScript).

With p = 2 ** -fraction_bits, the fields of a floating-point code mean (IEEE 754-2019 section 3.4)

    exponent field > 0:  ± (1 + fraction * p) * 2 ** (exponent - bias)        normal
    exponent field = 0:  ± (0 + fraction * p) * 2 ** (1 - bias)               zero and subnormals
"""

from __future__ import annotations

import math
from bisect import bisect_right
from numbers import Real
from typing import Literal

from hwlessons.facts.formats.catalogue import find_format
from hwlessons.facts.formats.fields import Fields, checked_code, code_of_fields, fields_of_code
from hwlessons.facts.formats.number_format import NumberFormat, Overflow


def decode(code: int, format: NumberFormat | str) -> float:
    """The number that a code means, exactly (a Python float holds every value of every format here).

    Raises:
        ValueError: if the code is no integer from 0 to 2 ** bits - 1, or the format is unknown.
    """
    fmt = find_format(format)
    return fmt.codebook[checked_code(code, fmt)] if fmt.codebook else decode_fields(fields_of_code(code, fmt), fmt)


def decode_fields(fields: Fields, format: NumberFormat | str) -> float:
    """The number that the fields of a floating-point code mean."""
    fmt = find_format(format)
    sign = -1.0 if fields.sign else 1.0
    if (fields.exponent, fields.fraction) > fmt.max_fields:
        return sign * math.inf if fmt.has_infinity and fields.fraction == 0 else math.nan
    if fields.exponent == 0 and fmt.has_subnormals:
        return sign * fields.fraction * 2.0 ** (fmt.min_exponent - fmt.fraction_bits)
    exponent = fields.exponent - (fmt.bias or 0)
    return sign * (2**fmt.fraction_bits + fields.fraction) * 2.0 ** (exponent - fmt.fraction_bits)


def encode(
    value: float,
    format: NumberFormat | str,
    *,
    overflow: Overflow = "saturate",
    rounding: Literal["nearest", "toward_zero"] = "nearest",
) -> int:
    """The code of the number of the format that `value` rounds to.

    Args:
        value: any Python number; -0.0, infinities and NaN too.
        format: a format or its name.
        overflow: what a number beyond the largest becomes. "saturate": the largest. "nonsaturating": infinity where the
            format has it, else NaN, else still the largest.
        rounding: "nearest" (a tie goes to the even significand; in a codebook to the smaller value) or "toward_zero".

    Raises:
        ValueError: if `value` is no number or a NaN that the format cannot hold, or an option is unknown.
    """
    fmt = find_format(format)
    if overflow not in ("saturate", "nonsaturating"):
        raise ValueError(f"overflow must be saturate or nonsaturating, got {overflow!r}")
    if rounding not in ("nearest", "toward_zero"):
        raise ValueError(f"rounding of one number must be nearest or toward_zero, got {rounding!r}")
    value = checked_number(value)
    if math.isnan(value) and not fmt.has_nan:
        raise ValueError(f"{fmt.name} has no code for NaN")
    if fmt.codebook:
        return _encode_with_codebook(value, fmt, rounding)
    return code_of_fields(encode_fields(value, fmt, overflow=overflow, rounding=rounding), fmt)


def encode_fields(
    value: float, format: NumberFormat | str, *, overflow: Overflow = "saturate", rounding: str = "nearest"
) -> Fields:
    """The fields of the floating-point code of `value`; see `encode`."""
    fmt = find_format(format)
    if math.isnan(value) or (value < 0 and not fmt.has_sign):
        return fields_of_code(fmt.nan_code or 0, fmt)
    sign = 1 if math.copysign(1.0, value) < 0 and fmt.has_sign else 0
    magnitude = abs(value)
    if math.isinf(magnitude):
        return _overflowed(sign, fmt, overflow)

    # between two powers of two the numbers of a format are evenly spaced: count the steps
    exponent = max(floor_log2(magnitude), fmt.min_exponent)
    steps = magnitude / 2.0 ** (exponent - fmt.fraction_bits)
    steps = round(steps) if rounding == "nearest" else math.floor(steps)  # round() takes ties to even

    one = 2**fmt.fraction_bits
    if steps == 2 * one:  # rounded up to the next power of two
        exponent, steps = exponent + 1, one
    if steps < one:
        return Fields(sign, 0, steps)
    rounded = Fields(sign, exponent + (fmt.bias or 0), steps - one)
    if (rounded.exponent, rounded.fraction) > fmt.max_fields:
        return Fields(sign, *fmt.max_fields) if rounding == "toward_zero" else _overflowed(sign, fmt, overflow)
    return rounded


def checked_number(value: float) -> float:
    """The value as a Python float; NaN and infinities are numbers here, texts and truth values are not.

    Raises:
        ValueError: if it is no real number, or an integer beyond the largest double.
    """
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise ValueError(f"value must be a number within the range of fp64, got {value!r:.40}")


def floor_log2(magnitude: float) -> int:
    """The exponent e with 2**e <= magnitude < 2**(e + 1), exactly; the smallest double's for zero."""
    return math.frexp(magnitude)[1] - 1 if magnitude else -1074


def _overflowed(sign: int, fmt: NumberFormat, overflow: Overflow) -> Fields:
    if overflow == "saturate" or not fmt.has_nan:
        return Fields(sign, *fmt.max_fields)
    special = fields_of_code(fmt.infinity_codes[0] if fmt.has_infinity else fmt.nan_code or 0, fmt)
    return special._replace(sign=sign)


def _encode_with_codebook(value: float, fmt: NumberFormat, rounding: str) -> int:
    values = sorted(fmt.codebook)
    upper = bisect_right(values, value)
    if upper == 0 or upper == len(values):
        return fmt.codebook.index(values[0] if upper == 0 else values[-1])
    below, above = values[upper - 1], values[upper]
    if rounding == "toward_zero":
        nearest = above if value < 0 and value != below else below
    else:
        nearest = above if value > (below + above) / 2 else below
    return fmt.codebook.index(nearest)
