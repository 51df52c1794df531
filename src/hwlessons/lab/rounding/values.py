"""Rounding of whole tensors to the numbers of a format."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from hwlessons.facts.formats import NumberFormat, Overflow, find_format

Rounding = Literal["nearest", "stochastic", "toward_zero"]
INPUT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CHUNK_SIZE = 2**17  # the temporaries of one chunk stay in a CPU's cache


@torch.no_grad()
def round_to(
    tensor: Tensor,
    format: NumberFormat | str,
    overflow: Overflow = "saturate",
    rounding: Rounding = "nearest",
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The numbers of a format that the values of a tensor round to, as a new tensor of the input's dtype.

    The result is exact wherever the input's dtype holds the numbers of the format; elsewhere (fp16 input rounded to
    2 ** 16 in bf16) the cast back to the input's dtype rounds once more. There is no gradient through it.

    Args:
        tensor: values of any shape in fp64, fp32, fp16 or bf16. A NaN stays NaN, also for a format without one.
        format: a format or its name in `hwlessons.facts.formats.FORMATS`.
        overflow: what values beyond the largest become, infinities too. "saturate": the largest. "nonsaturating":
            infinity where the format has it, else NaN, else still the largest. A cast in torch is "nonsaturating" for
            fp16, bf16 and e5m2; for e4m3 it depends on torch's version.
        rounding: "nearest" (a tie goes to the even significand; in a codebook to the smaller value), "toward_zero", or
            "stochastic": up with a probability equal to the fraction of the step, so that the mean is the value.
        generator: where "stochastic" draws from; by default torch's global one.

    Raises:
        ValueError: if the input is no such tensor, or the format or an option is unknown.
    """
    fmt, tensor = find_format(format), checked_tensor(tensor)
    if overflow not in get_args(Overflow):
        raise ValueError(f"overflow must be one of {', '.join(get_args(Overflow))}, got {overflow!r}")
    if rounding not in get_args(Rounding):
        raise ValueError(f"rounding must be one of {', '.join(get_args(Rounding))}, got {rounding!r}")
    working_dtype = torch.float64 if tensor.dtype == torch.float64 or fmt.codebook else torch.float32
    values = tensor.reshape(-1)
    result = torch.empty_like(values)
    for chunk, out in zip(values.split(CHUNK_SIZE), result.split(CHUNK_SIZE), strict=True):
        x = chunk.to(working_dtype)
        if fmt.codebook:
            out.copy_(_round_to_codebook(x, fmt, rounding, generator))
        else:
            rounded = _round_to_steps(x, fmt, rounding, generator)
            out.copy_(_limit(rounded, x, fmt, overflow, rounding))
    return result.reshape(tensor.shape)


def checked_tensor(tensor: Tensor) -> Tensor:
    """The tensor as it is.

    Raises:
        ValueError: if it is no tensor of fp64, fp32, fp16 or bf16.
    """
    if not isinstance(tensor, Tensor) or tensor.dtype not in INPUT_DTYPES:
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"tensor must be a torch tensor of float64, float32, float16 or bfloat16, got {got}")
    return tensor


def _round_to_steps(x: Tensor, fmt: NumberFormat, rounding: Rounding, generator: torch.Generator | None) -> Tensor:
    """As if the format had no largest exponent: divide by the spacing at each value, round, multiply (both exact)."""
    info = torch.finfo(x.dtype)
    if 2.0**-fmt.fraction_bits <= info.eps and fmt.min_exponent <= math.log2(info.tiny):
        return x.clone()  # the format holds every value of the working dtype
    spacing = _power_of_two_below(x).clamp_(2.0**fmt.min_exponent, 2.0**fmt.max_exponent)
    spacing.mul_(2.0**-fmt.fraction_bits)
    steps = x / spacing
    if rounding == "nearest":
        steps.round_()  # ties to even
    elif rounding == "toward_zero":
        steps.trunc_()
    else:
        whole = steps.abs().floor_()
        steps = (whole + _happens(steps.abs() - whole, generator)).copysign_(x)
    return steps.mul_(spacing)


def _power_of_two_below(x: Tensor) -> Tensor:
    """The largest power of two that is at most |x|: its exponent bits alone; 0 for a subnormal x."""
    if x.dtype == torch.float64:
        return x.view(torch.int64).bitwise_and(0x7FF0_0000_0000_0000).view(torch.float64)
    return x.view(torch.int32).bitwise_and(0x7F80_0000).view(torch.float32)


def _happens(probability: Tensor, generator: torch.Generator | None) -> Tensor:
    draws = torch.rand(probability.shape, dtype=torch.float64, device=probability.device, generator=generator)
    return draws < probability


def _limit(rounded: Tensor, x: Tensor, fmt: NumberFormat, overflow: Overflow, rounding: Rounding) -> Tensor:
    largest = fmt.max
    if not fmt.has_sign:
        rounded = torch.where(x < 0, math.nan, rounded.clamp_(min=2.0**fmt.min_exponent))
    if largest > torch.finfo(x.dtype).max:
        return rounded
    if overflow == "saturate" or not fmt.has_nan:
        return rounded.clamp_(-largest, largest)
    is_over = x.isinf() if rounding == "toward_zero" else rounded.abs() > largest
    special = torch.full_like(x, fmt.overflow_value).copysign_(x)
    return torch.where(is_over, special, rounded.clamp_(-largest, largest))


def _round_to_codebook(x: Tensor, fmt: NumberFormat, rounding: Rounding, generator: torch.Generator | None) -> Tensor:
    values = torch.tensor(sorted(fmt.codebook), dtype=x.dtype, device=x.device)
    index = torch.bucketize(x, values, right=True).sub_(1).clamp_(0, len(values) - 2)
    below, above = values[index], values[index + 1]
    if rounding == "nearest":
        goes_up = x > (below + above) / 2
    elif rounding == "toward_zero":
        goes_up = torch.where(x < 0, x > below, x >= above)
    else:
        goes_up = _happens((x - below) / (above - below), generator)
    return torch.where(x.isnan(), x, torch.where(goes_up, above, below))
