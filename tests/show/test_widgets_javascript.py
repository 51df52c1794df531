"""The explorer's JavaScript gives the numbers of `hwlessons.facts.formats`, code for code."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import quickjs

from hwlessons.facts.formats import (
    FORMATS,
    NumberFormat,
    Overflow,
    code_of_bits,
    decode,
    encode,
    neighbours,
    spacing,
    write_bits,
)
from hwlessons.show.widgets.numbers_as_text import table_row, write_short, write_value
from hwlessons.show.widgets.scripts import NUMBER_FORMAT_EXPLORER

# numbers cross as the 64 bits of a double and codes as digits, so that nan, -0 and 64-bit codes arrive as they are
GLUE = """
const view = new DataView(new ArrayBuffer(8));
const double = (hex) => { view.setBigUint64(0, BigInt("0x" + hex)); return view.getFloat64(0); };
const hex = (x) => { if (x === null) return null; view.setFloat64(0, Number.isNaN(x) ? NaN : x);
                     return view.getBigUint64(0).toString(16).padStart(16, "0"); };
const digits = (code) => code === null ? null : code.toString();
function map(format, task, items) {
  const f = FORMATS[format];
  return JSON.stringify(JSON.parse(items).map(TASKS[task](f)));
}
const TASKS = {
  decode: (f) => (code) => hex(decode(BigInt(code), f)),
  bits: (f) => (code) => [writeBits(BigInt(code), f), digits(readBits(writeBits(BigInt(code), f), f).code)],
  saturate: (f) => (x) => digits(encode(double(x), f, "saturate")),
  nonsaturating: (f) => (x) => digits(encode(double(x), f, "nonsaturating")),
  neighbours: (f) => (x) => [...neighbours(double(x), f), spacing(double(x), f)].map(hex),
  row: (f) => (x) => [...tableRow(double(x), f, "nonsaturating"), ...tableRow(double(x), f, "saturate")],
  text: () => (x) => [writeNumber(double(x)), writeShort(double(x))],
  explain: (f) => (code) => Object.values(explain(BigInt(code), f)).join("; "),
  read: (f) => (text) => { const found = readNumber(text, f); return "value" in found ? hex(found.value) : found; },
  readBits: (f) => (text) => { const found = readBits(text, f); return found.problem ?? digits(found.code); },
};
"""
Map = Callable[[str, str, Sequence[Any]], list[Any]]


def load(source: str) -> Map:
    context = quickjs.Context()
    context.eval(source + GLUE)
    call = context.get("map")
    return lambda name, task, items: json.loads(call(name, task, json.dumps(items)))


@pytest.fixture(scope="module")
def js() -> Map:
    return load(NUMBER_FORMAT_EXPLORER.source)


def hexed(value: float | None) -> str | None:
    if value is None:
        return None
    return "7ff8000000000000" if math.isnan(value) else struct.pack(">d", value).hex()


def codes(fmt: NumberFormat) -> list[int]:
    """All codes of at most 16 bits; else the ends of every range, and 20,000 at random."""
    if fmt.bits <= 16:
        return list(range(fmt.num_codes))
    pick = random.Random(f"codes of {fmt.name}")
    one = 2**fmt.fraction_bits
    ends = [0, 1, one - 1, one, one + 1, fmt.max_code, fmt.max_code + 1, fmt.max_code + 2, fmt.sign_code - 1]
    return [*ends, *(end + fmt.sign_code for end in ends), *(pick.randrange(fmt.num_codes) for _ in range(20_000))]


def held_values(fmt: NumberFormat) -> list[float]:
    """The finite values of `codes`, ascending, one for both zeros."""
    return sorted({value + 0.0 for code in codes(fmt) if math.isfinite(value := decode(code, fmt))})


def ties(fmt: NumberFormat) -> list[float]:
    """The middle between two values: all of them in at most 16 bits, else 2,000."""
    held = held_values(fmt)
    if fmt.bits <= 16:
        pairs = list(pairwise(held))
    else:
        pairs = [(value, neighbours(value, fmt)[1] or 0.0) for value in random.Random(fmt.name).sample(held, 2_000)]
    return [below / 2 + above / 2 for below, above in pairs if math.isfinite(above)]


def others(fmt: NumberFormat) -> list[float]:
    """Doubles right beside ties, around the largest value, at random over all doubles and near 1, and special ones."""
    pick = random.Random(f"values of {fmt.name}")
    some = pick.sample(middles := ties(fmt), min(len(middles), 1_000))
    beside = [math.nextafter(tie, way) for tie in some for way in (-math.inf, math.inf)]
    edge = [fmt.max, math.nextafter(fmt.max, math.inf), *(fmt.max * (1 + k / 64) for k in range(33) if fmt.bits < 64)]
    wide = [struct.unpack(">d", pick.randbytes(8))[0] for _ in range(2_000)]
    usual = [pick.gauss(0, 1) * 2.0 ** pick.randint(-12, 12) for _ in range(2_000)]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1.7976931348623157e308, 2.0**-1022, 1e-310]
    return [*beside, *edge, *(-value for value in edge), *wide, *usual, *special]


def encoded(value: float, fmt: NumberFormat, overflow: Overflow) -> str | None:
    return None if math.isnan(value) and not fmt.has_nan else str(encode(value, fmt, overflow=overflow))


def differences(js: Map, name: str) -> list[str]:
    """Where JavaScript and Python differ for a format: in decoding, rounding, or the numbers beside a number."""
    fmt = FORMATS[name]
    all_codes = codes(fmt)
    digits = [str(code) for code in all_codes]
    found = list(_differ("decode", digits, js(name, "decode", digits), [hexed(decode(c, fmt)) for c in all_codes]))
    bits = [[write_bits(code, fmt), str(code)] for code in all_codes]
    found += _differ("bits", digits, js(name, "bits", digits), bits)
    held, middles, more = held_values(fmt), ties(fmt), others(fmt)
    tasks: dict[Overflow, list[float]] = {"nonsaturating": [*held, *middles, *more], "saturate": [*held[::16], *more]}
    for overflow, numbers in tasks.items():
        actual = js(name, overflow, [hexed(number) for number in numbers])
        found += _differ(overflow, numbers, actual, [encoded(number, fmt, overflow) for number in numbers])
    numbers = [*held, *middles[::16], *more]
    beside = [[*map(hexed, neighbours(number, fmt)), hexed(spacing(number, fmt))] for number in numbers]
    return found + list(_differ("neighbours", numbers, js(name, "neighbours", [*map(hexed, numbers)]), beside))


def _differ(task: str, items: Iterable[Any], actual: list[Any], wanted: list[Any]) -> Iterable[str]:
    for item, one, other in zip(items, actual, wanted, strict=True):
        if one != other:
            yield f"{task} of {item}: {one} in JavaScript, {other} in Python"


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_and_every_tie_is_as_in_python(js: Map, name: str) -> None:
    found = differences(js, name)
    assert not found, f"{len(found)}: {found[:3]}"


def alike(text: str, other: str) -> bool:
    """Whether two texts are the same, or the same number: QuickJS writes a digit too many at some powers of two.

    The browser's own writing is compared to the letter in tests/site.
    """
    try:
        return text == other or float(text) == float(other)
    except ValueError:
        return False


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_is_written_as_in_python(js: Map, name: str) -> None:
    fmt = FORMATS[name]
    for number in random.Random(name).sample(others(fmt), 300):
        [row] = js(name, "row", [hexed(number)])
        wanted = [*table_row(number, fmt, "nonsaturating"), *table_row(number, fmt, "saturate")]
        assert len(row) == len(wanted) and all(map(alike, row, wanted)), (number, row, wanted)


def test_numbers_are_written_as_in_python(js: Map) -> None:
    for number in [
        x for name in ("fp16", "e8m0", "fp64") for x in [*held_values(FORMATS[name])[::7], *others(FORMATS[name])]
    ]:
        [texts] = js("fp64", "text", [hexed(number)])
        assert all(map(alike, texts, [write_value(number), write_short(number)])), (number, texts)


MUTANTS = {
    "ties away from zero": ("(rest === 0.5 && below % 2 === 1)", "rest === 0.5", "e5m2"),
    "no ties at all": ("rest > 0.5 || ", "rest >= 0.5 || ", "e2m1"),
    "subnormals with a leading one": ("if (exponent === 0 && f.has_sub", "if (false && f.has_sub", "e4m3"),
    "the next power of two forgotten": ("[exponent + 1, one]", "[exponent, one]", "e4m3"),
    "the largest is infinity": ("fraction > maxFraction", "fraction >= maxFraction", "e5m2"),
    "saturated without being asked": ('overflow === "saturate" ||', "true ||", "e4m3"),
    "a minus sign lost": ("value < 0 || Object.is(value, -0)", "value < 0", "e3m2"),
    "spacing that never grows": ("Math.max(floorLog2(Math.abs", "Math.min(floorLog2(Math.abs", "e2m3"),
    "the number itself as its neighbour": ("? numberAt(place - 1n, f) : atOrBelow", "? atOrBelow : atOrBelow", "e4m3"),
    "a middle of the codebook rounded up": ("value > (below + above) / 2", "value >= (below + above) / 2", "nf4"),
    "subnormal doubles doubled": ("* powerOfTwo(-52)", "* powerOfTwo(-51)", "fp64"),
    "the wrong bias": ("exponent - f.bias - f.fraction_bits", "exponent - f.bias + 1 - f.fraction_bits", "e8m0"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "name"), MUTANTS.values(), ids=MUTANTS)
def test_a_planted_error_is_found(old: str, new: str, name: str) -> None:
    source = NUMBER_FORMAT_EXPLORER.source
    assert source.count(old) == 1
    assert differences(load(source.replace(old, new)), name)


@pytest.mark.parametrize(
    ("name", "bits", "said"),
    [
        ("bf16", "0 01111011 1001101", "plus; 123 − 127: times 2^-4; 1 + 77/128"),
        ("fp16", "1 00000 0000000011", "minus; 0: times 2^-14, no leading 1 (subnormal); 0 + 3/1024"),
        ("e5m2", "0 11111 00", "plus; 31: infinity or NaN; 0: infinity"),
        ("e5m2", "0 11111 01", "plus; 31: infinity or NaN; 1: NaN"),
        ("e4m3", "0 1111 111", "plus; all ones; all ones: NaN"),
        ("e4m3", "0 1111 110", "plus; 15 − 7: times 2^8; 1 + 6/8"),
        ("nf4", "0111", "entry 7 of a table of 16 values"),
    ],
)
def test_fields_are_explained(js: Map, name: str, bits: str, said: str) -> None:
    assert js(name, "explain", [str(code_of_bits(bits, name))]) == [said]


@pytest.mark.parametrize(
    "text", ["0.1", " -3 ", "+.5", "6e-8", "1E3", "5.", "−2", "0", "1.7976931348623157e308", "4e-324"]
)
def test_numbers_are_read_as_in_python(js: Map, text: str) -> None:
    assert js("bf16", "read", [text]) == [hexed(float(text.replace("−", "-")))]


@pytest.mark.parametrize(("text", "value"), [("inf", math.inf), ("-Infinity", -math.inf)])
def test_infinity_is_read(js: Map, text: str, value: float) -> None:
    assert js("bf16", "read", [text]) == [hexed(value)]


@pytest.mark.parametrize(
    ("name", "text", "problem", "offer"),
    [
        ("bf16", "", "Type a number", False),
        ("bf16", "abc", "“abc” is no number", False),
        ("bf16", "0x10", "is no number", False),
        ("bf16", "1e", "is no number", False),
        ("bf16", "--1", "is no number", False),
        ("bf16", "x" * 90, "x" * 40 + "” is no number", False),
        ("bf16", "0,1", "Write a point: 0.1", False),
        ("bf16", "nan", "bf16 has a code for it", True),
        ("e2m1", "NaN", "e2m1 has no code for NaN", False),
        ("bf16", "-0", "-0 equals 0; bf16 has a code of its own", True),
        ("fp16", "-0.00e5", "-0 equals 0", True),
        ("nf4", "-0", "nf4 has no code of its own for it", False),
        ("e8m0", "-0", "e8m0 has no code of its own for it", False),
        ("fp64", "1e400", "1e400 is beyond fp64", False),
        ("fp64", "-1e400", "-1e400 is beyond fp64", False),
        ("fp64", "1e-400", "closer to 0 than fp64 goes", False),
    ],
)
def test_what_is_no_number_is_said(js: Map, name: str, text: str, problem: str, offer: bool) -> None:
    [found] = js(name, "read", [text])
    assert problem in found["problem"]
    assert ("offer" in found) == offer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0011110111001101", str(0x3DCD)),
        ("0 0111_1011 1001101\n", str(0x3DCD)),
        ("0011", "bf16 has 16 bits; here are 4."),
        ("0" * 17, "bf16 has 16 bits; here are 17."),
        ("", "bf16 has 16 bits; here are 0."),
        ("0x3dcd", "Bits are written with 0 and 1 only."),
    ],
)
def test_bits_are_read_or_refused(js: Map, text: str, found: str) -> None:
    assert js("bf16", "readBits", [text]) == [found]
