"""Layouts and limits of the number formats, against torch.finfo, ml_dtypes.finfo and the published tables."""

from __future__ import annotations

import json
import math
from statistics import NormalDist

import ml_dtypes
import numpy as np
import pytest
import torch

from hwlessons.facts.formats import (
    FORMATS,
    Fields,
    NumberFormat,
    code_of_bits,
    code_of_fields,
    decode,
    decode_fields,
    encode,
    encode_fields,
    fields_of_code,
    finite_values,
    formats_table,
    neighbours,
    published_limits,
    spacing,
    write_bits,
)

NAMES = ["fp64", "fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e8m0", "nf4"]
TORCH = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
ML_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


def test_the_catalogue_has_every_format_with_its_source():
    assert list(FORMATS) == NAMES
    assert all(fmt.name == name and fmt.source for name, fmt in FORMATS.items())
    assert {name: fmt.storage_bits for name, fmt in FORMATS.items() if fmt.storage_bits != fmt.bits} == {"tf32": 32}


@pytest.mark.parametrize("name", TORCH)
def test_limits_equal_torch(name):
    fmt, info = FORMATS[name], torch.finfo(TORCH[name])
    assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.eps) == (
        info.max,
        info.smallest_normal,
        torch.finfo(TORCH[name]).smallest_normal * info.eps,
        info.eps,
    )
    assert fmt.storage_bits == info.bits


@pytest.mark.parametrize("name", ML_DTYPES)
def test_limits_equal_ml_dtypes(name):
    fmt, info = FORMATS[name], ml_dtypes.finfo(ML_DTYPES[name])
    theirs = (info.max, info.smallest_normal, info.smallest_subnormal, info.eps)
    assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.eps) == tuple(map(float, theirs))
    assert (fmt.exponent_bits, fmt.fraction_bits) == (info.iexp, info.nmant)


PUBLISHED_LIMITS = ["fmt_e2m1_limits", "fmt_e2m3_limits", "fmt_e5m2_limits", "fmt_fp16_limits", "fmt_tf32_limits"]


@pytest.mark.parametrize("id", PUBLISHED_LIMITS)
def test_published_limits(published, id):
    case = published(id)
    fmt = FORMATS[case.inputs["format"]]
    layout = {key: case.inputs[key] for key in ("exponent_bits", "fraction_bits", "bias")}
    assert {key: getattr(fmt, key) for key in layout} == layout
    case.check({key: getattr(fmt, key) for key in ("max", "min_normal", "min_subnormal", "eps")})


def test_published_limits_of_the_scale_format(published):
    fmt = FORMATS["e8m0"]
    assert fmt.bias == published("fmt_e8m0_limits").inputs["bias"]
    published("fmt_e8m0_limits").check(
        {
            "min": fmt.min_normal,
            "max": fmt.max,
            "nan_code": fmt.nan_code,
            "codes_finite": fmt.num_codes - len(fmt.nan_codes) - len(fmt.infinity_codes),
            "has_zero": fmt.has_zero,
        }
    )
    assert fmt.eps is None and fmt.min_subnormal is None


def test_published_special_codes_of_e5m2(published):
    fmt = FORMATS["e5m2"]
    codes = {"nan": fmt.nan_codes, "inf": fmt.infinity_codes, "max_code": fmt.max_code, "one": encode(1.0, fmt)}
    published("fmt_e5m2_special_codes").check(codes | {"nan": list(fmt.nan_codes), "inf": list(fmt.infinity_codes)})


def test_published_census_of_codes(published):
    def census(fmt: NumberFormat) -> dict[str, int]:
        values = [decode(code, fmt) for code in range(fmt.num_codes)]
        assert [code for code, value in enumerate(values) if math.isnan(value)] == list(fmt.nan_codes)
        assert [code for code, value in enumerate(values) if math.isinf(value)] == list(fmt.infinity_codes)
        return {
            "codes": fmt.num_codes,
            "finite_codes": sum(map(math.isfinite, values)),
            "nan_codes": len(fmt.nan_codes),
            "inf_codes": len(fmt.infinity_codes),
            "distinct_finite_values": len(finite_values(fmt)),
        }

    case = published("fmt_code_census")
    case.check({name: census(FORMATS[name]) for name in case.inputs["formats"]})


def test_nan_codes_of_wide_formats_take_no_memory():
    codes = FORMATS["fp64"].nan_codes
    assert len(codes) == 2 * (2**52 - 1)
    assert codes[0] == 0x7FF0000000000001 and codes[-1] == 2**64 - 1
    assert 0x7FF8000000000000 in codes and 0x7FF0000000000000 not in codes
    assert FORMATS["e5m2"].nan_codes == (125, 126, 127, 253, 254, 255)
    assert FORMATS["e5m2"].nan_codes[1:4] == (126, 127, 253) and FORMATS["e2m1"].nan_codes == ()
    with pytest.raises(IndexError):
        codes[len(codes)]


def test_nf4_is_made_of_normal_quantiles():
    """The construction of QLoRA section 3: 8 + 7 quantiles of N(0, 1) and a zero, scaled to [-1, 1]."""
    quantile, offset = NormalDist().inv_cdf, 0.9677083
    positive = [quantile(p) for p in np.linspace(offset, 0.5, 9)[:-1]]
    negative = [-quantile(p) for p in np.linspace(offset, 0.5, 8)[:-1]]
    values = np.sort([*positive, 0.0, *negative]) / max(positive)
    np.testing.assert_allclose(FORMATS["nf4"].codebook, values, atol=2e-7)
    assert all(float(np.float32(value)) == value for value in FORMATS["nf4"].codebook)
    nf4 = FORMATS["nf4"]
    assert (nf4.max, nf4.eps, nf4.bias, nf4.min_normal, nf4.min_subnormal) == (1.0, None, None, None, None)


def test_the_table_for_pages_is_json_and_complete():
    table = json.loads(json.dumps(formats_table(), allow_nan=False))
    assert table == formats_table() and list(table) == NAMES
    assert table["e4m3"]["max_fields"] == [15, 6] and table["nf4"]["max_fields"] is None
    assert table["fp64"]["max"] == FORMATS["fp64"].max


def test_bits_are_written_by_field_and_read_back():
    assert write_bits(encode(1.5, "fp16"), "fp16") == "0 01111 1000000000"
    assert write_bits(encode(-448.0, "e4m3"), "e4m3") == "1 1111 110"
    assert write_bits(127, "e8m0") == "01111111" and write_bits(7, "nf4") == "0111"
    assert all(code_of_bits(write_bits(code, "e3m2"), "e3m2") == code for code in range(64))


def test_fields_carry_into_the_exponent_when_a_value_rounds_up_to_a_power_of_two():
    for value in (1.99, -0.999, 0.0156, 447.0, 1e9):
        fields = encode_fields(value, "e4m3")
        assert fields == fields_of_code(encode(value, "e4m3"), "e4m3")
        assert decode_fields(fields, "e4m3") == decode(code_of_fields(fields, "e4m3"), "e4m3")
    assert encode_fields(1.99, "e4m3") == Fields(sign=0, exponent=8, fraction=0)
    with pytest.raises(ValueError, match="nf4 is a table of values: its codes have no sign, exponent and fraction"):
        fields_of_code(3, "nf4")


def test_spacing_grows_with_magnitude():
    assert [spacing(x, "bf16") for x in (0.0, 1.0, -2.0, 256.0)] == [2.0**-133, 2.0**-7, 2.0**-6, 2.0]
    assert spacing(448.0, "e4m3") == 32.0 and spacing(449.0, "e4m3") is None and spacing(math.nan, "e4m3") is None
    assert spacing(0.0, "nf4") == FORMATS["nf4"].codebook[8] and spacing(1.0, "nf4") is None
    assert spacing(-1.0, "nf4") is None and spacing(0.9, "nf4") == 1.0 - FORMATS["nf4"].codebook[14]


def test_neighbours_of_values_between_and_beyond_the_numbers():
    assert neighbours(0.3, "e2m1") == (0.0, 0.5) and neighbours(-0.3, "e2m1") == (-0.5, 0.0)
    assert neighbours(100.0, "e2m1") == (6.0, None) and neighbours(-math.inf, "e2m1") == (None, -6.0)
    assert neighbours(1e9, "fp16") == (65504.0, math.inf) and neighbours(math.inf, "fp16") == (65504.0, None)
    assert neighbours(480.0, "e4m3") == (448.0, None) and neighbours(math.nan, "e4m3") == (None, None)
    assert neighbours(-1.0, "e8m0") == (None, 2.0**-127) and neighbours(0.0, "e8m0") == (None, 2.0**-127)
    assert neighbours(3.0, "e8m0") == (2.0, 4.0) and neighbours(0.0, "nf4") == FORMATS["nf4"].codebook[6:9:2]


@pytest.mark.parametrize("bad", ["1.5", None, True, 10**400, 1j])
@pytest.mark.parametrize("function", [encode, neighbours, spacing])
def test_what_is_no_number_is_refused(function, bad):
    with pytest.raises(ValueError, match="value must be a number within the range of fp64, got"):
        function(bad, "e4m3")


def test_other_bad_input_names_the_value_and_what_is_allowed():
    with pytest.raises(ValueError, match="unknown number format 'fp8'; there are fp64, fp32, tf32"):
        encode(1.0, "fp8")
    with pytest.raises(ValueError, match="a code of e4m3 must be an integer from 0 to 255, got 256"):
        decode(256, "e4m3")
    with pytest.raises(ValueError, match=r"a code of e4m3 must be an integer from 0 to 255, got 1\.0"):
        decode(1.0, "e4m3")
    with pytest.raises(ValueError, match="bits of fp16 must be 16 digits 0 or 1, got 3: '101'"):
        code_of_bits("101", "fp16")
    with pytest.raises(ValueError, match="bits of e2m1 must be 4 digits"):
        code_of_bits("0 12 0", "e2m1")
    with pytest.raises(ValueError, match="e2m1 has no code for NaN"):
        encode(math.nan, "e2m1")
    with pytest.raises(ValueError, match="overflow must be saturate or nonsaturating, got 'wrap'"):
        encode(1.0, "e4m3", overflow="wrap")
    with pytest.raises(ValueError, match="must be nearest or toward_zero, got 'up'"):
        encode(1.0, "e4m3", rounding="up")
    with pytest.raises(ValueError, match="at most 16 bits have their values listed, got tf32"):
        finite_values("tf32")
    with pytest.raises(ValueError, match=r"must have a bias and 8 bits, got bias 3 and 1 \+ 3 \+ 3 bits"):
        NumberFormat("mine", 8, exponent_bits=3, fraction_bits=3, bias=3)
    with pytest.raises(ValueError, match="a codebook of 2 bits must have 4 values, got 1"):
        NumberFormat("mine", 2, codebook=[1.0])
    with pytest.raises(ValueError, match="specials must be one of ieee, nan, none, got 'fnuz'"):
        NumberFormat("mine", 8, exponent_bits=4, fraction_bits=3, bias=7, specials="fnuz")


def test_limits_are_those_that_the_specifications_print():
    printed = published_limits()
    assert set(printed) == {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}
    for name, limits in printed.items():
        assert (FORMATS[name].max, FORMATS[name].min_normal, FORMATS[name].min_subnormal) == limits
