"""Bits that block formats cost, against the published numbers and counts by hand."""

from __future__ import annotations

import pytest

from hwlessons.formulas.block_formats import BLOCK_FORMATS, BlockFormat, find_block_format
from hwlessons.units import GB


def test_published_bits_of_double_quantisation(published):
    case = published("qlora_dq_bits")
    single, double = BLOCK_FORMATS["nf4"], BLOCK_FORMATS["nf4_double"]
    assert (single.block_size, double.scale_block_size) == (case.inputs["block1"], case.inputs["block2"])
    bits = {"without": single.scale_bits_per_value, "with": double.scale_bits_per_value}
    case.check(bits | {"saved": bits["without"] - bits["with"]})


def test_published_saving_on_65_billion_parameters(published):
    case = published("qlora_saving_65B")
    num_values = int(case.inputs["params"])
    sizes = [BLOCK_FORMATS[name].stored_bytes(num_values) for name in ("nf4", "nf4_double")]
    case.check((sizes[0] - sizes[1]) / GB)


def test_bits_per_value_of_every_format():
    assert {name: fmt.bits_per_value for name, fmt in BLOCK_FORMATS.items()} == {
        "int8": 8 + 32 / 64,
        "int4": 4 + 32 / 64,
        "nf4": 4.5,
        "nf4_double": 4 + 8 / 64 + 32 / (64 * 256),
        "mxfp8_e4m3": 8.25,
        "mxfp8_e5m2": 8.25,
        "mxfp6_e3m2": 6.25,
        "mxfp6_e2m3": 6.25,
        "mxfp4_e2m1": 4.25,
        "nvfp4": 4.5,
    }
    assert all(fmt.source for fmt in BLOCK_FORMATS.values())


def test_stored_bytes_of_short_tensors_count_whole_bytes_blocks_and_constants():
    assert BLOCK_FORMATS["mxfp6_e3m2"].stored_bytes(33) == 25 + 2  # 198 bits, two scales
    assert BLOCK_FORMATS["nvfp4"].stored_bytes(16) == 8 + 1 + 4
    assert BLOCK_FORMATS["nvfp4"].stored_bytes(17) == 9 + 2 + 4
    assert BLOCK_FORMATS["nf4_double"].stored_bytes(64 * 256 + 1) == 8193 + 257 + 2 * 4 + 4
    assert BLOCK_FORMATS["int8"].stored_bytes(1) == 1 + 4


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_stored_bytes_of_long_tensors_approach_the_bits_per_value(name):
    fmt, num_values = BLOCK_FORMATS[name], 2**24
    constants = 32 * fmt.num_tensor_constants
    assert 8 * fmt.stored_bytes(num_values) == fmt.bits_per_value * num_values + constants


def test_the_largest_element():
    assert {name: fmt.element_max for name, fmt in BLOCK_FORMATS.items() if "fp" not in name} == {
        "int8": 127.0,
        "int4": 7.0,
        "nf4": 1.0,
        "nf4_double": 1.0,
    }
    assert BLOCK_FORMATS["nvfp4"].element_max == 6.0


def test_another_block_size_changes_the_bits():
    assert BLOCK_FORMATS["nf4"].with_block_size(256).bits_per_value == 4.125
    assert find_block_format(BLOCK_FORMATS["nf4"]) is BLOCK_FORMATS["nf4"]


def test_bad_input_names_the_value_and_what_is_allowed():
    with pytest.raises(ValueError, match="unknown block format 'mxfp5'; there are int8, int4, nf4"):
        find_block_format("mxfp5")
    with pytest.raises(ValueError, match="block_size must be an integer of at least 1, got 0"):
        BLOCK_FORMATS["nf4"].with_block_size(0)
    with pytest.raises(ValueError, match="num_values must be an integer of at least 1, got -3"):
        BLOCK_FORMATS["nf4"].stored_bytes(-3)
    with pytest.raises(ValueError, match="unknown number format 'int3'"):
        BlockFormat("mine", "int3", 64, "fp32", "absmax")
    with pytest.raises(ValueError, match=r"scale_rule must be one of absmax, power_of_two, .*, got 'ceil'"):
        BlockFormat("mine", "e2m1", 64, "fp32", "ceil")
