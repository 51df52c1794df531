"""The bits of a code: its three fields, and how it is written down.

A code is the bits of a number read as an integer. A floating-point code is three fields, from the highest bit: sign,
exponent, fraction.
"""

from __future__ import annotations

from typing import NamedTuple

from hwlessons.facts.formats.catalogue import find_format
from hwlessons.facts.formats.number_format import NumberFormat


class Fields(NamedTuple):
    """The three fields of a floating-point code, as integers; for fp64 each still is exact in a double."""

    sign: int
    exponent: int
    fraction: int


def fields_of_code(code: int, format: NumberFormat | str) -> Fields:
    """Takes a floating-point code apart.

    Raises:
        ValueError: if the code is no integer from 0 to 2 ** bits - 1, or the format has no fields.
    """
    fmt = find_format(format)
    if fmt.codebook:
        raise ValueError(f"{fmt.name} is a table of values: its codes have no sign, exponent and fraction")
    rest, fraction = divmod(checked_code(code, fmt), 2**fmt.fraction_bits)
    sign, exponent = divmod(rest, 2**fmt.exponent_bits)
    return Fields(sign, exponent, fraction)


def code_of_fields(fields: Fields, format: NumberFormat | str) -> int:
    """Puts a floating-point code together."""
    fmt = find_format(format)
    return (fields.sign * 2**fmt.exponent_bits + fields.exponent) * 2**fmt.fraction_bits + fields.fraction


def write_bits(code: int, format: NumberFormat | str) -> str:
    """The bits of a code, highest first, fields apart: "0 01111 1000000000" is 1.5 in fp16."""
    fmt = find_format(format)
    bits = f"{checked_code(code, fmt):0{fmt.bits}b}"
    ends = (int(fmt.has_sign), int(fmt.has_sign) + fmt.exponent_bits, fmt.bits)
    parts = [bits] if fmt.codebook else [bits[: ends[0]], bits[ends[0] : ends[1]], bits[ends[1] :]]
    return " ".join(part for part in parts if part)


def code_of_bits(bits: str, format: NumberFormat | str) -> int:
    """The code that a text of 0 and 1 means; spaces and underscores between them do not count.

    Raises:
        ValueError: if there are other characters, or not as many bits as the format has.
    """
    fmt = find_format(format)
    digits = bits.replace(" ", "").replace("_", "")
    if set(digits) - {"0", "1"} or len(digits) != fmt.bits:
        raise ValueError(f"bits of {fmt.name} must be {fmt.bits} digits 0 or 1, got {len(digits)}: {bits!r}")
    return int(digits, 2)


def checked_code(code: int, fmt: NumberFormat) -> int:
    """The code as it is.

    Raises:
        ValueError: if it is no integer from 0 to 2 ** bits - 1.
    """
    if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code < fmt.num_codes:
        raise ValueError(f"a code of {fmt.name} must be an integer from 0 to {fmt.num_codes - 1}, got {code!r}")
    return code
