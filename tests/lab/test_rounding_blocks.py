"""Block formats: published blocks and errors, gfloat and plain numpy as oracles, bytes really stored."""

from __future__ import annotations

import gfloat
import gfloat.formats
import numpy as np
import pytest
import torch

from hwlessons.facts.formats import FORMATS
from hwlessons.formulas.block_formats import BLOCK_FORMATS
from hwlessons.lab.rounding import (
    dequantise,
    from_codes,
    pack_codes,
    quantisation_error,
    quantise,
    relative_rms_error,
    to_codes,
    unpack_codes,
)

MX = [name for name in BLOCK_FORMATS if name.startswith("mx")]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def block_of(values: list[float], size: int) -> torch.Tensor:
    return torch.tensor(values + [0.0] * (size - len(values)))


def test_published_mx_blocks(published):
    case = published("block_mx")
    x = block_of(case.inputs["first8"], case.inputs["block"])
    stored = {name: quantise(x, name) for name in case.expected}
    case.check(
        {
            name: {"scale": q.block_scales.item(), "dequantised_first8": dequantise(q)[:8].tolist()}
            for name, q in stored.items()
        }
    )


def test_published_saturation_of_a_block_by_its_own_scale(published):
    case = published("mx_saturates_its_own_max")
    stored = quantise(block_of(case.inputs["values"], 32), case.inputs["format"])
    case.check({"scale": stored.block_scales.item(), "dequantised": dequantise(stored)[:3].tolist()})


def test_published_mx_errors_on_normal_values(published):
    case = published("rms_N01_mx")
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(2**20).astype(np.float32))
    case.check({name: quantisation_error(x, name) for name in case.expected})


@pytest.mark.parametrize("name", MX)
def test_mx_equals_gfloat_on_every_block(name):
    rng = np.random.default_rng(3)
    blocks = (rng.standard_normal((64, 32)) * np.exp2(rng.integers(-20, 20, (64, 1)))).astype(np.float32)
    info = getattr(gfloat.formats, f"format_info_{name}")
    theirs = [gfloat.quantize_block(info, block.astype(np.float64), gfloat.compute_scale_amax) for block in blocks]
    assert dequantise(quantise(torch.from_numpy(blocks), name)).double().tolist() == np.array(theirs).tolist()


@pytest.mark.parametrize(("name", "largest"), [("int8", 127), ("int4", 7)])
def test_integers_equal_plain_numpy(name, largest):
    x = normal(50, 64)
    scale = np.abs(x.numpy()).max(1, keepdims=True) / np.float32(largest)
    expected = np.round(x.numpy() / scale).clip(-largest, largest)
    stored = quantise(x, name)
    assert stored.elements.tolist() == expected.tolist()
    assert dequantise(stored).tolist() == (expected.astype(np.float32) * scale).tolist()


def test_nf4_takes_the_nearest_code_and_keeps_each_blocks_largest_value():
    x = normal(100, 64)
    scale = x.abs().amax(1, keepdim=True)
    codebook = torch.tensor(FORMATS["nf4"].codebook)
    nearest = codebook[((x / scale)[..., None] - codebook).abs().argmin(-1)]
    stored = quantise(x, "nf4")
    assert torch.equal(stored.elements, nearest) and torch.equal(dequantise(stored), nearest * scale)
    largest = x.abs().argmax(1, keepdim=True)
    positive = x.gather(1, largest) > 0
    assert torch.equal(dequantise(stored).gather(1, largest)[positive], x.gather(1, largest)[positive])


def test_double_quantisation_changes_scales_by_less_than_a_step_of_their_format():
    x = normal(4096, 64)
    single, double = quantise(x, "nf4"), quantise(x, "nf4_double")
    scales, mean = single.block_scales, double.scales.tensor_constant
    assert mean.item() == pytest.approx(scales.mean().item())
    largest = (scales - mean).abs().max().item()
    assert (double.block_scales - scales).abs().max().item() <= largest / 16  # half of e4m3's eps
    assert double.scales.blocks.dtype == torch.uint8 and double.scales.scale_blocks.shape == (16,)
    assert relative_rms_error(dequantise(double), x) == pytest.approx(quantisation_error(x, "nf4"), rel=0.01)


def test_nvfp4_by_hand():
    x = torch.cat([block_of([6.0 * 448.0, 1.0], 16), block_of([3.0, -1.5, 0.4], 16)])
    stored = quantise(x, "nvfp4")
    assert stored.scales.tensor_constant.item() == 1.0
    assert stored.block_scales.tolist() == [448.0, 0.5]
    assert dequantise(stored)[:2].tolist() == [6.0 * 448.0, 0.0]
    assert dequantise(stored)[16:19].tolist() == [3.0, -1.5, 0.5]


def test_nvfp4_scales_are_e4m3_multiples_of_the_tensors_scale():
    x = normal(64, 64) * torch.exp2(normal(64, 1, seed=1))
    stored = quantise(x, "nvfp4")
    assert stored.scales.tensor_constant.item() == pytest.approx(x.abs().max().item() / (6 * 448), rel=1e-6)
    wanted = x.reshape(-1, 16).abs().amax(1) / 6 / stored.scales.tensor_constant
    expected = wanted.to(torch.float8_e4m3fn).float() * stored.scales.tensor_constant
    assert torch.equal(stored.block_scales, expected)


def test_an_outlier_spoils_its_own_block_only():
    x = normal(2, 64)
    spoiled = x.clone()
    spoiled[0, 0] = 1000.0
    assert torch.equal(dequantise(quantise(spoiled, "nf4"))[1], dequantise(quantise(x, "nf4"))[1])
    assert (dequantise(quantise(spoiled, "nf4"))[0, 1:] == 0).all()


def test_smaller_blocks_have_smaller_errors():
    x, nf4 = normal(256, 256), BLOCK_FORMATS["nf4"]
    errors = [quantisation_error(x, nf4.with_block_size(size)) for size in (16, 64, 256, 1024)]
    assert errors == sorted(errors)


@pytest.mark.parametrize("num_values", [1, 15, 33, 1000, 64 * 256 + 1])
@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_stored_bytes_are_those_of_the_formula(name, num_values):
    stored = quantise(normal(num_values), name)
    assert stored.stored_bytes == BLOCK_FORMATS[name].stored_bytes(num_values)
    assert stored.bits_per_value == 8 * stored.stored_bytes / num_values
    storages = [stored.packed, stored.scales.blocks, stored.scales.scale_blocks, stored.scales.tensor_constant]
    assert sum(tensor.untyped_storage().nbytes() for tensor in storages) == stored.stored_bytes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_shape_and_dtype_come_back_and_a_second_time_changes_nothing(name, dtype):
    x = normal(3, 5, 40).to(dtype)
    once = dequantise(quantise(x.transpose(0, 1), name))
    assert once.dtype == dtype and once.shape == (5, 3, 40)
    assert torch.equal(dequantise(quantise(x.transpose(0, 1).contiguous(), name)), once)
    if name in MX and dtype == torch.float32:
        assert torch.equal(dequantise(quantise(once, name)), once)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_zeros_stay_zeros_also_beside_other_blocks(name):
    assert not dequantise(quantise(torch.zeros(7, 9), name)).any()
    x = torch.cat([torch.zeros(64), normal(64), torch.full((64,), 1e-30)])
    y = dequantise(quantise(x, name))
    assert not y[:64].any() and y[64:128].any() and y.isfinite().all()


@pytest.mark.parametrize("magnitude", [1e-44, 1e-38, 3e38])
@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_extreme_magnitudes_stay_finite(name, magnitude):
    y = dequantise(quantise(torch.full((64,), magnitude), name))
    assert y.isfinite().all() and (y >= 0).all()
    if name in MX and magnitude > 1e-40:
        assert relative_rms_error(y, torch.full((64,), magnitude)) < 0.26


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].bits <= 8])
def test_codes_of_whole_tensors_equal_the_scalar_codes(name):
    fmt = FORMATS[name]
    codes = torch.arange(fmt.num_codes, dtype=torch.uint8)
    values = from_codes(codes, name)
    finite = values.isfinite() & ~((values == 0) & values.signbit())
    assert torch.equal(to_codes(values[finite], name), codes[finite])
    with pytest.raises(ValueError, match=f"values must be finite numbers of {name}, got 0.3"):
        to_codes(torch.tensor([1.0, 0.3]), name)


@pytest.mark.parametrize("num_bits", [4, 6, 8])
def test_packing_takes_exactly_the_bits_and_comes_back(num_bits):
    for num_codes in (0, 1, 3, 4, 1001):
        codes = torch.randint(0, 2**num_bits, (num_codes,), dtype=torch.uint8)
        packed = pack_codes(codes, num_bits)
        assert len(packed) == -(-num_codes * num_bits // 8) and packed.dtype == torch.uint8
        assert torch.equal(unpack_codes(packed, num_bits, num_codes), codes)
    assert pack_codes(torch.tensor([0x3, 0xA], dtype=torch.uint8), 4).tolist() == [0xA3]


def test_bad_input_names_the_value_and_what_is_allowed():
    with pytest.raises(ValueError, match="unknown block format 'e4m3'; there are int8"):
        quantise(torch.ones(3), "e4m3")
    with pytest.raises(ValueError, match="at least one value and only finite ones, got inf"):
        quantise(torch.tensor([1.0, torch.inf]), "nf4")
    with pytest.raises(ValueError, match="at least one value and only finite ones, got none"):
        quantise(torch.ones(0), "nf4")
    with pytest.raises(ValueError, match=r"tensor must be a torch tensor of float64.*, got torch\.int64"):
        quantise(torch.arange(3), "nf4")
    with pytest.raises(ValueError, match=r"shapes must be the same, got \(3,\) and \(2,\)"):
        relative_rms_error(torch.ones(3), torch.ones(2))
    with pytest.raises(ValueError, match=r"a value other than 0 and no NaN, got a norm of 0\.0"):
        quantisation_error(torch.zeros(3), "nf4")
    with pytest.raises(ValueError, match="only formats of at most 8 bits have codes here, got fp16 with 16"):
        to_codes(torch.ones(1), "fp16")
