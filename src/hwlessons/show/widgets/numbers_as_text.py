"""Numbers as the number-format explorer writes them; its JavaScript writes the same, and tests compare the two."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext

from hwlessons.facts.formats import NumberFormat, decode, encode, spacing, write_bits
from hwlessons.facts.formats.number_format import Overflow

MISSING = "—"
COLUMNS = ("format", "stored", "relative error", "spacing", "bits")


def write_value(value: float | None) -> str:
    """The shortest decimal that is this very fp64: "0.1", "65504", "1e-7", "-0", "inf", "nan"; a dash for None."""
    if value is None:
        return MISSING
    mantissa, _, exponent = repr(float(value)).partition("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{int(exponent):+d}" if exponent else mantissa


def write_short(value: float | None) -> str:
    """Three significant digits, a tie away from zero as in JavaScript; a dash for None, infinity and NaN."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    with localcontext(rounding=ROUND_HALF_UP):
        return f"{Decimal(value):.2e}"


def relative_error(stored: float, number: float) -> float | None:
    """|stored - number| / |number|; None where something is stored for zero."""
    if number == 0:
        return 0.0 if stored == 0 else None
    return abs(stored - number) / abs(number)


def table_row(number: float, fmt: NumberFormat, overflow: Overflow) -> tuple[str, ...]:
    """What a format makes of a number: name, stored value, relative error, spacing there, bits."""
    if math.isnan(number) and not fmt.has_nan:
        return fmt.name, "has no nan", MISSING, MISSING, MISSING
    code = encode(number, fmt, overflow=overflow)
    stored = decode(code, fmt)
    texts = (write_short(relative_error(stored, number)), write_short(spacing(stored, fmt)), write_bits(code, fmt))
    return fmt.name, write_value(stored), *texts
