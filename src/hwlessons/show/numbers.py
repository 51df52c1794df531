"""Numbers that a reader or a check is given: taken only if they are numbers, and written with their unit."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from hwlessons.units import UNITS, format_bytes, format_flops, format_seconds

Number = int | float


def plain_number(value: Any, what: str) -> Number:
    """An int or a float from a number of Python or numpy.

    Raises:
        ValueError: for what is not one finite number (a bool, a tensor, text, NaN, infinity), naming `what`.
    """
    if isinstance(value, bool):
        raise ValueError(f"{what}={value} is a truth value; give a number (a count of 0 or 1 is int(...))")
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real):
        hint = "; take its value with .item()" if hasattr(value, "item") else ""
        raise ValueError(f"{what} is a {type(value).__name__}; give one int or float{hint}")
    if not math.isfinite(value):
        raise ValueError(f"{what}={float(value)} is not finite; give a number that can be compared")
    return float(value)


def difference(a: Number, b: Number) -> Fraction:
    """a - b without rounding."""
    return Fraction(a) - Fraction(b)


def write_number(value: Number) -> str:
    """A number in full if it is whole, with six significant digits if not."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.6g}" if 1e-4 <= abs(value) < 1e9 else f"{value:.6g}"


def write_quantity(value: Number, unit: str) -> str:
    """A number with its unit, and in larger units where that is easier to read: "9,600,000,000 B (8.94 GiB)"."""
    if unit == "s":
        return format_seconds(value)
    exact = f"{write_number(value)} {unit}".strip()
    if unit not in UNITS or UNITS[unit].factor != 1:
        return exact
    readable = {"bytes": format_bytes, "flops": format_flops}.get(UNITS[unit].quantity)
    larger = abs(value) >= {"bytes": 1024, "flops": 10**6}.get(UNITS[unit].quantity, math.inf)
    return f"{exact} ({readable(value)})" if readable and larger else exact


def float_ratio(measured: Number, predicted: Number) -> float | None:
    """measured / predicted; None where predicted is 0 or the ratio is beyond a float."""
    try:
        return float(Fraction(measured) / Fraction(predicted))
    except (ZeroDivisionError, OverflowError):
        return None


def write_ratio(measured: Number, predicted: Number) -> str:
    """measured / predicted, never written as 1 unless it is."""
    if predicted == 0:
        return "1" if measured == 0 else "none (predicted 0)"
    ratio = Fraction(measured) / Fraction(predicted)
    if float_ratio(measured, predicted) is None:
        return "too large to write"
    if f"{float(ratio):.5g}" == "1" and ratio != 1:
        return f"1 {'+' if ratio > 1 else '−'} {float(abs(ratio - 1)):.1e}"
    return f"{float(ratio):.5g}"
