"""Rounding against torch, numpy, ml_dtypes and gfloat: all ties and their sides, and a million values per format.

Where a library does something else, `DIFFERENCES` says which library from which version on does what, and for which
inputs; everything outside of that list must be equal to the sign of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch
from packaging.specifiers import SpecifierSet

from hwlessons.facts.formats import FORMATS, find_format, finite_values
from hwlessons.lab.rounding import round_to

Mask = Callable[[np.ndarray], np.ndarray]
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e8m0": torch.float8_e8m0fnu,
}
ML_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
GFLOAT = {
    "fp16": gfloat.formats.format_info_binary16,
    "bf16": gfloat.formats.format_info_bfloat16,
    "fp32": gfloat.formats.format_info_binary32,
}
GFLOAT |= {name: getattr(gfloat.formats, f"format_info_ocp_{name}") for name in ML_DTYPES if name != "bf16"}
# gfloat has no tf32; described to it, it rounds it.
GFLOAT["tf32"] = gfloat.FormatInfo(
    name="tf32",
    k=19,
    precision=11,
    bias=127,
    is_signed=True,
    domain=gfloat.Domain.Extended,
    has_nz=True,
    num_high_nans=2**10 - 1,
    has_subnormals=True,
    is_twos_complement=False,
)


@dataclass(frozen=True)
class Difference:
    """What a library does with some inputs of some formats instead of what `round_to` does."""

    library: str
    versions: str
    formats: tuple[str, ...]
    overflow: tuple[str, ...]
    inputs: Mask
    what: str

    def holds(self, library: str, name: str, overflow: str) -> bool:
        known = library == self.library and name in self.formats and overflow in self.overflow
        return known and SpecifierSet(self.versions).contains(version(library), prereleases=True)


def between_the_two_smallest_scales(x: np.ndarray) -> np.ndarray:
    return (x > 2.0**-127) & (x < 2.0**-126)


UP = "rounds everything between 2**-127 and 2**-126, subnormal in fp32, up"
BOTH = ("saturate", "nonsaturating")
NO_NAN = ("e3m2", "e2m3", "e2m1")
DIFFERENCES = [
    Difference("torch", ">=2.13", ("e4m3",), BOTH[1:], lambda x: abs(x) > 464, "saturates at 448, infinities too"),
    Difference("torch", ">=2.9", ("e8m0",), BOTH[1:], lambda x: x < 0, "drops the sign"),
    Difference("torch", ">=2.9", ("e8m0",), BOTH[1:], between_the_two_smallest_scales, UP),
    Difference("ml-dtypes", ">=0.5", ("e8m0",), BOTH[1:], lambda x: x == 0, "zero becomes NaN, not 2**-127"),
    Difference("ml-dtypes", ">=0.5", ("e8m0",), BOTH[1:], between_the_two_smallest_scales, UP),
    Difference("ml-dtypes", ">=0.5", NO_NAN, BOTH[1:], np.isnan, "NaN becomes minus zero"),
    Difference("gfloat", ">=0.5", ("e8m0",), BOTH, lambda x: x < 2.0**-127, "NaN below the smallest, not 2**-127"),
    Difference(
        "gfloat", ">=0.5", ("e8m0",), BOTH, lambda x: np.frexp(x)[0] == 0.75, "a tie goes to the even exponent field"
    ),
]


def as_torch(x: np.ndarray, name: str, overflow: str) -> np.ndarray:
    return torch.from_numpy(x).to(TORCH[name]).to(torch.float64).numpy()


def as_ml_dtypes(x: np.ndarray, name: str, overflow: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(ML_DTYPES[name]).astype(np.float64)


def as_gfloat(x: np.ndarray, name: str, overflow: str, rounding: str = "nearest") -> np.ndarray:
    """gfloat refuses NaN, and overflow without saturation, where a format has no NaN: not asked for."""
    saturates = overflow == "saturate" or not FORMATS[name].has_nan
    mode = gfloat.RoundMode.TiesToEven if rounding == "nearest" else gfloat.RoundMode.TowardZero
    askable = np.ones(len(x), bool) if FORMATS[name].has_nan else ~np.isnan(x)
    result = np.full(len(x), math.nan)
    with np.errstate(all="ignore"):
        result[askable] = gfloat.round_ndarray(GFLOAT[name], x[askable].astype(np.float64), mode, saturates)
    return result


def check(library: str, name: str, overflow: str, x: np.ndarray, theirs: np.ndarray, rounding: str = "nearest") -> None:
    ours = round_to(torch.from_numpy(x), name, overflow, rounding).double().numpy()
    equal = (ours == theirs) & (np.signbit(ours) == np.signbit(theirs)) | np.isnan(ours) & np.isnan(theirs)
    for difference in DIFFERENCES:
        if difference.holds(library, name, overflow):
            equal |= difference.inputs(x)
    wrong = np.flatnonzero(~equal)
    first = [(x[i].item(), ours[i].item(), theirs[i].item()) for i in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} of {len(x)} differ from {library}; first (input, ours, theirs): {first}"


@cache
def ties(name: str) -> np.ndarray:
    """Every number of a format of at most 16 bits, every midpoint, the point beyond; both sides of each; in fp32."""
    fmt = find_format(name)
    numbers = np.array([*finite_values(fmt)])
    beyond = 2 * fmt.max - numbers[-2] if fmt.max < 1e38 else fmt.max
    numbers = np.concatenate([[-beyond] if fmt.has_sign else [], numbers, [beyond]])
    with np.errstate(over="ignore"):
        points = np.concatenate([numbers, numbers[:-1] + np.diff(numbers) / 2]).astype(np.float32)
        sides = [np.nextafter(points, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([points, *sides, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])])


@cache
def million(name: str) -> np.ndarray:
    """Half spread over the format's exponents and beyond, half any fp32 bits at all: NaN and infinities too."""
    fmt, rng, half = find_format(name), np.random.default_rng(11), 600_000
    exponents = rng.uniform(fmt.min_exponent - fmt.fraction_bits - 3, fmt.max_exponent + 3, half)
    with np.errstate(over="ignore"):
        spread = (rng.standard_normal(half) * np.exp2(exponents)).astype(np.float32)
    return np.concatenate([spread, rng.integers(0, 2**32, half, dtype=np.uint32).view(np.float32)])


SETS = {"ties": ties, "million": million}
LIBRARIES = [("torch", as_torch, TORCH), ("ml-dtypes", as_ml_dtypes, ML_DTYPES)]


@pytest.mark.parametrize("values", SETS)
@pytest.mark.parametrize(
    ("library", "cast", "name"), [(library, cast, name) for library, cast, names in LIBRARIES for name in names]
)
def test_nearest_equals_the_casts(values, library, cast, name):
    """Casts do not saturate, apart from the listed differences and the formats without NaN."""
    x = SETS[values](name)
    check(library, name, "nonsaturating", x, cast(x, name, "nonsaturating"))


@pytest.mark.parametrize("overflow", BOTH)
@pytest.mark.parametrize("rounding", ["nearest", "toward_zero"])
@pytest.mark.parametrize("name", GFLOAT)
def test_both_overflows_and_roundings_equal_gfloat(name, rounding, overflow):
    """gfloat rounds doubles: the same values, and the same again as fp64 input with more bits."""
    x = million(name)
    if FORMATS[name].bits <= 16:
        x = np.concatenate([x, ties(name)])
    check("gfloat", name, overflow, x, as_gfloat(x, name, overflow, rounding), rounding)
    doubles = x[:100_000].astype(np.float64) * (1 + 1e-12)
    check("gfloat", name, overflow, doubles, as_gfloat(doubles, name, overflow, rounding), rounding)


def test_doubles_round_once_and_not_by_way_of_fp32():
    """Just above a tie of bf16 that fp32 cannot see: torch 2.13 and ml_dtypes 0.6 round twice, gfloat once."""
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    ours = round_to(torch.from_numpy(x), "bf16").item()
    assert ours == 1 + 2.0**-7 == as_gfloat(x, "bf16", "saturate")[0]
    assert as_ml_dtypes(x, "bf16", "saturate")[0] == as_torch(x, "bf16", "saturate")[0] == 1.0


def test_fp32_and_fp16_from_doubles_equal_numpy():
    rng = np.random.default_rng(12)
    x = rng.standard_normal(1_000_000) * np.exp2(rng.uniform(-160, 130, 1_000_000))
    x = np.concatenate([x, [np.inf, -np.inf, np.nan, 0.0, -0.0, 3.4028235677973366e38, 65520.0]])
    with np.errstate(over="ignore"):
        check("numpy", "fp32", "nonsaturating", x, x.astype(np.float32).astype(np.float64))
        check("numpy", "fp16", "nonsaturating", x, x.astype(np.float16).astype(np.float64))


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: f"{d.library}-{d.formats[0]}-{d.what}")
def test_every_listed_difference_is_real(difference):
    """A difference that a library has given up must leave the list."""
    library, name, overflow = difference.library, difference.formats[0], difference.overflow[-1]
    if not difference.holds(library, name, overflow):
        pytest.skip(f"{library} {version(library)} is outside of {difference.versions}")
    x = np.concatenate([ties(name), million(name)[-200_000:]])
    x = x[difference.inputs(x)]
    cast = {"torch": as_torch, "ml-dtypes": as_ml_dtypes, "gfloat": as_gfloat}[library]
    ours = round_to(torch.from_numpy(x), name, overflow).numpy()
    theirs = cast(x, name, overflow)
    assert len(x) and not np.all((ours == theirs) | np.isnan(ours) & np.isnan(theirs))
