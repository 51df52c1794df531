"""Rounding of tensors: every published case, the modes, what the input may be, and agreement with the scalar twin."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from hwlessons.facts.formats import FORMATS, NumberFormat, decode, encode, neighbours
from hwlessons.lab.rounding import round_to

# The "fp4" of bitsandbytes, in code order (its csrc/kernels.cu, dDequantizeFP4Tree): not OCP's e2m1.
BNB_FP4_HALF = [0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
BNB_FP4 = NumberFormat("bnb_fp4", 4, codebook=BNB_FP4_HALF + [-value for value in BNB_FP4_HALF])


def as_tensor(values: list[float | str], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], dtype=dtype)


def as_case(tensor: torch.Tensor) -> list[float | str]:
    """Values as the cases write them: infinities and NaN as text."""
    return [value if math.isfinite(value) else str(value) for value in tensor.tolist()]


def relative_rms(approximation: np.ndarray, reference: np.ndarray) -> float:
    approximation, reference = approximation.astype(np.float64), reference.astype(np.float64)
    return float(np.sqrt(np.sum((approximation - reference) ** 2) / np.sum(reference**2)))


@pytest.mark.parametrize("id", ["round_e2m1", "round_e3m2", "round_e5m2_inrange"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_published_roundings(published, id, dtype):
    case = published(id)
    case.check(as_case(round_to(as_tensor(case.inputs["x"], dtype), case.inputs["format"])))


def test_published_overflow_of_e4m3(published):
    case = published("round_e4m3_overflow_nonsaturating")
    x = as_tensor(case.inputs["x"])
    case.check(as_case(round_to(x, "e4m3", overflow="nonsaturating")))
    assert round_to(x, "e4m3").tolist() == [448.0] * 4


def test_published_third_in_tf32(published):
    case = published("tf32_third")
    case.check(round_to(as_tensor([case.inputs["x"]]), "tf32").item())


def test_published_swamping(published):
    """A small update to a large weight rounds away: at half a spacing, unless the tie goes up to an even number."""
    case = published("swamping")
    case.check([round_to(as_tensor([w + u]), format).item() for format, w, u in case.inputs["sums"]])
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    sums = [torch.tensor(w, dtype=dtypes[f]) + torch.tensor(u, dtype=dtypes[f]) for f, w, u in case.inputs["sums"]]
    case.check([total.item() for total in sums])


def test_published_gradients_in_fp16_with_and_without_loss_scale(published):
    for id in ("loss_scale_fp16", "loss_scale_fp16_x1024"):
        case = published(id)
        scale = case.inputs.get("scale", 1)
        case.check((round_to(as_tensor(case.inputs["g"]) * scale, case.inputs["format"]) / scale).tolist())


def test_published_sum_of_ones(published):
    """The kernel adds in fp32 and rounds once: 65,536 is beyond fp16's largest number, so the cast gives infinity."""
    case = published("sum_65536_ones")
    total = torch.ones(case.inputs["n"]).sum()
    case.check([as_case(round_to(total.reshape(1), f, "nonsaturating"))[0] for f in case.inputs["reduce_dtype"]])
    dtypes = [torch.float16, torch.bfloat16, torch.float32]
    case.check([as_case(torch.ones(case.inputs["n"], dtype=dtype).sum().reshape(1))[0] for dtype in dtypes])


def test_published_error_on_normal_values(published):
    case = published("rms_N01_plain")
    x = np.random.default_rng(0).standard_normal(2**20).astype(np.float32)
    case.check({name: relative_rms(round_to(torch.from_numpy(x), name).numpy(), x) for name in case.expected})


def test_published_error_of_4_bit_codebooks(published):
    case = published("nf4_rms_N01")
    x = torch.randn(case.inputs["shape"], generator=torch.Generator().manual_seed(0))[:512]  # an eighth: 2 million
    blocks = x.reshape(-1, case.inputs["block"])
    scales = blocks.abs().amax(1, keepdim=True)
    errors = {
        name: relative_rms((round_to(blocks / scales, fmt) * scales).numpy(), blocks.numpy())
        for name, fmt in {"nf4": FORMATS["nf4"], "bnb_fp4": BNB_FP4}.items()
    }
    case.check(errors)


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.3,
    5e-324,
    1e-45,
    2.0**-127,
    2.0**-149,
    448.0,
    464.0,
    480.0,
    6.0,
    7.0,
    65520.0,
    3.4e38,
]
SPECIAL += [-value for value in SPECIAL] + [math.inf, -math.inf]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("overflow", ["saturate", "nonsaturating"])
@pytest.mark.parametrize("rounding", ["nearest", "toward_zero"])
def test_the_tensor_way_equals_the_scalar_way(name, overflow, rounding):
    rng = np.random.default_rng(1)
    values = rng.standard_normal(1000) * 2.0 ** rng.integers(-20, 20, 1000)
    values = torch.from_numpy(np.concatenate([values, SPECIAL]))
    scalar = [decode(encode(x, name, overflow=overflow, rounding=rounding), name) for x in values.tolist()]
    assert_same(round_to(values, name, overflow, rounding), torch.tensor(scalar, dtype=torch.float64))
    single = values.float()
    scalar = [decode(encode(x, name, overflow=overflow, rounding=rounding), name) for x in single.tolist()]
    if name != "fp64" or overflow == "nonsaturating":  # fp32 cannot hold fp64's largest number
        assert_same(round_to(single, name, overflow, rounding), torch.tensor(scalar))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_tie_in_a_codebook_goes_to_the_smaller_value(dtype):
    """As in bitsandbytes, whose comparison is x > midpoint."""
    values = torch.tensor(FORMATS["nf4"].codebook, dtype=torch.float64)
    ties = ((values[:-1] + values[1:]) / 2).to(dtype)
    is_tie = ties.double() * 2 == values[:-1] + values[1:]
    assert is_tie.all() if dtype == torch.float64 else is_tie.any()
    assert torch.equal(round_to(ties, "nf4").double()[is_tie], values[:-1][is_tie])
    assert [encode(tie, "nf4") for tie in ties[is_tie].tolist()] == torch.arange(15)[is_tie].tolist()
    above = torch.nextafter(ties, torch.ones_like(ties))
    assert torch.equal(round_to(above, "nf4").double(), values[1:])
    assert [encode(value, "nf4") for value in above.tolist()] == list(range(1, 16))


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal to the sign of zero, NaN equal to NaN, and of the same dtype."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    signs_differ = (ours.signbit() != theirs.signbit()) & ~ours.isnan()
    assert not signs_differ.any(), (ours[signs_differ], theirs[signs_differ])


@pytest.mark.parametrize("name", ["bf16", "e4m3", "e5m2", "e2m1", "nf4"])
def test_stochastic_rounding_takes_a_neighbour_and_has_the_right_mean(name):
    draws, generator = 20_000, torch.Generator().manual_seed(7)
    for value in (0.3, -0.3, 0.9, 0.001, -0.77):
        value = torch.tensor(value).item()
        below, above = neighbours(value, name)
        rounded = round_to(torch.full((draws,), value), name, rounding="stochastic", generator=generator).double()
        assert set(rounded.tolist()) <= {below, above}
        share = (value - below) / (above - below)
        five_sigma = 5 * math.sqrt(share * (1 - share) / draws) * (above - below)
        assert abs(rounded.mean().item() - value) <= five_sigma + 1e-12


def test_stochastic_rounding_keeps_what_the_format_holds():
    held = torch.tensor([0.0, -0.0, 1.0, -1.75, 448.0, 2.0**-9, math.nan])
    for _ in range(100):
        assert_same(round_to(held, "e4m3", rounding="stochastic"), held)
    assert round_to(torch.tensor([math.inf, -1e9]), "e4m3", rounding="stochastic").tolist() == [448.0, -448.0]
    spread = round_to(torch.full((1000,), 65519.0), "fp16", "nonsaturating", "stochastic")
    assert set(spread.tolist()) == {65504.0, math.inf}


def test_stochastic_rounding_lets_small_updates_arrive_on_average():
    generator, totals = torch.Generator().manual_seed(1), torch.ones(200)
    for _ in range(100):
        totals = round_to(totals + 2.0**-10, "bf16", rounding="stochastic", generator=generator)
    assert statistics.fmean(totals.tolist()) == pytest.approx(1 + 100 / 1024, rel=0.01)
    assert round_to(torch.ones(1) + 2.0**-10, "bf16").item() == 1.0


def test_a_seeded_generator_repeats_the_draws():
    x = torch.randn(1000)
    first, second = (
        round_to(x, "e2m1", rounding="stochastic", generator=torch.Generator().manual_seed(3)) for _ in "ab"
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FORMATS)
def test_dtype_and_shape_come_back_and_the_input_stays(dtype, name):
    x = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0)).abs().to(dtype)
    before = x.clone()
    y = round_to(x.transpose(0, 2), name)
    assert y.dtype == dtype and y.shape == (7, 5, 3) and torch.equal(x, before)
    assert torch.equal(y, round_to(x, name).transpose(0, 2))
    assert torch.equal(round_to(y, name), y)
    assert round_to(x[0, 0, 0], name).shape == () and round_to(x[:0], name).shape == (0, 5, 7)


def test_no_gradient_goes_through():
    assert not round_to(torch.ones(3, requires_grad=True), "e4m3").requires_grad


def test_a_format_of_ones_own():
    e3m4 = NumberFormat("e3m4", 8, exponent_bits=3, fraction_bits=4, bias=3, specials="ieee")
    assert round_to(torch.tensor([1.03, 15.6, 1e3]), e3m4, "nonsaturating").tolist() == [1.0, 15.5, math.inf]


def test_nan_stays_nan_where_a_format_has_none():
    for name in FORMATS:
        assert round_to(torch.tensor([math.nan, 1.0]), name).isnan().tolist() == [True, False]


def test_bad_input_names_the_value_and_what_is_allowed():
    x = torch.ones(2)
    with pytest.raises(ValueError, match="unknown number format 'e9m9'; there are fp64"):
        round_to(x, "e9m9")
    with pytest.raises(ValueError, match=r"tensor must be a torch tensor of float64.*, got torch\.int64"):
        round_to(torch.arange(3), "e4m3")
    with pytest.raises(ValueError, match=r"got torch\.float8_e5m2"):
        round_to(x.to(torch.float8_e5m2), "e4m3")
    with pytest.raises(ValueError, match="got list"):
        round_to([1.0], "e4m3")
    with pytest.raises(ValueError, match="overflow must be one of saturate, nonsaturating, got 'wrap'"):
        round_to(x, "e4m3", overflow="wrap")
    with pytest.raises(ValueError, match="rounding must be one of nearest, stochastic, toward_zero, got 'up'"):
        round_to(x, "e4m3", rounding="up")
