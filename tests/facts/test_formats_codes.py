"""Every code of the formats of at most 16 bits against numpy, torch, ml_dtypes and gfloat; a sample of the wider."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch

from hwlessons.facts.formats import FORMATS, decode, encode, finite_values, neighbours, spacing

NUMPY = {
    "fp64": np.float64,
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e8m0": torch.float8_e8m0fnu,
}
GFLOAT = {
    "fp64": gfloat.formats.format_info_binary64,
    "fp32": gfloat.formats.format_info_binary32,
    "fp16": gfloat.formats.format_info_binary16,
    "bf16": gfloat.formats.format_info_bfloat16,
} | {
    name: getattr(gfloat.formats, f"format_info_ocp_{name}")
    for name in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e8m0")
}
SMALL = [name for name in NUMPY if FORMATS[name].bits <= 16]


def same(ours: Iterable[float], theirs: Iterable[float]) -> bool:
    """Equal to the bit as doubles, any NaN equal to any NaN."""
    ours, theirs = np.array(list(ours), np.float64), np.array(list(theirs), np.float64)
    both_nan = np.isnan(ours) & np.isnan(theirs)
    return bool(np.all(both_nan | (ours.view(np.int64) == theirs.view(np.int64))))


def codes_as(name: str) -> np.ndarray:
    bits = FORMATS[name].bits
    return np.arange(2**bits, dtype=np.uint8 if bits <= 8 else np.uint16)


@pytest.mark.parametrize("name", SMALL)
def test_decode_every_code_as_ml_dtypes_and_numpy(name):
    theirs = as_doubles(codes_as(name).view(NUMPY[name]))
    assert same((decode(int(code), name) for code in codes_as(name)), theirs)


@pytest.mark.parametrize("name", TORCH)
def test_decode_every_code_as_torch(name):
    codes = torch.from_numpy(codes_as(name).copy())
    assert same((decode(int(code), name) for code in codes), codes.view(TORCH[name]).double().numpy())


@pytest.mark.parametrize("name", [name for name in GFLOAT if FORMATS[name].bits <= 8])
def test_decode_every_code_as_gfloat(name):
    theirs = (gfloat.decode_float(GFLOAT[name], int(code)).fval for code in codes_as(name))
    assert same((decode(int(code), name) for code in codes_as(name)), theirs)


@pytest.mark.parametrize("name", SMALL)
def test_encode_gives_every_code_back(name):
    fmt = FORMATS[name]
    for code in range(fmt.num_codes):
        value = decode(code, fmt)
        expected = fmt.nan_code if math.isnan(value) else code
        assert encode(value, fmt, overflow="nonsaturating") == expected
        if math.isfinite(value):
            assert encode(value, fmt) == code and encode(value, fmt, rounding="toward_zero") == code


@pytest.mark.parametrize(("name", "pattern"), [("fp64", "Qd"), ("fp32", "If")])
def test_wide_formats_equal_the_machine(name, pattern):
    rng, fmt = np.random.default_rng(5), FORMATS[name]
    codes = [int(code) % fmt.num_codes for code in rng.integers(0, 2**64, 50_000, dtype=np.uint64)]
    codes += [0, 1, fmt.max_code, *fmt.infinity_codes, fmt.sign_code, 2**fmt.fraction_bits, 2**fmt.fraction_bits - 1]
    theirs = [struct.unpack(">" + pattern[1], struct.pack(">" + pattern[0], code))[0] for code in codes]
    assert same((decode(code, name) for code in codes), theirs)
    finite = [(code, value) for code, value in zip(codes, theirs, strict=True) if math.isfinite(value)]
    assert all(encode(value, name) == code for code, value in finite)


def test_fp32_rounds_doubles_as_the_machine():
    rng = np.random.default_rng(6)
    values = np.concatenate(
        [rng.standard_normal(20_000) * 2.0 ** rng.integers(-160, 130, 20_000), [3.4e38, 3.5e38, 0.0]]
    )
    with np.errstate(over="ignore"):
        theirs = values.astype(np.float32).view(np.uint32)
    assert [encode(float(value), "fp32", overflow="nonsaturating") for value in values] == theirs.tolist()


def as_doubles(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return numbers.astype(np.float64)


@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3", "e5m2"])
def test_neighbours_and_spacing_of_every_number_as_nextafter(name):
    """Where nextafter finds no further number it stays, and ours is None.

    The magnitudes are compared, because numpy 2.4.6 halves the spacing of fp16 at negative powers of two.
    """
    fmt, numbers = FORMATS[name], codes_as(name).view(NUMPY[name])
    numbers = numbers[~np.isnan(as_doubles(numbers))]
    values = as_doubles(numbers).tolist()
    last = math.inf if fmt.has_infinity else fmt.max
    with np.errstate(over="ignore", invalid="ignore"):
        below, above = (as_doubles(np.nextafter(numbers, NUMPY[name](end))).tolist() for end in (-last, last))
        steps = as_doubles(np.spacing(np.abs(numbers))).tolist()
    for value, *beside, step in zip(values, below, above, steps, strict=True):
        expected = tuple(None if other == value else other for other in beside)
        assert neighbours(value, fmt) == expected, (value, expected)
        assert spacing(value, fmt) == (step if abs(value) < fmt.max else spacing(-value, fmt)), value


@pytest.mark.parametrize("name", ["e3m2", "e2m3", "e2m1", "e8m0", "nf4"])
def test_neighbours_of_every_number_are_next_in_the_sorted_values(name):
    """Here ml_dtypes' nextafter leaves the format at its ends, so the sorted values are the oracle."""
    values = [None, *finite_values(name), None]
    for below, value, above in zip(values, values[1:], values[2:], strict=False):
        if value is not None:
            assert neighbours(value, name) == (below, above)
