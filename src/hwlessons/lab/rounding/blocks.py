"""Tensors in block formats: quantise, dequantise, and the error in between."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hwlessons.formulas.block_formats import INTEGER_BITS, BlockFormat, find_block_format
from hwlessons.lab.rounding.codes import from_codes, pack_codes, to_codes, unpack_codes
from hwlessons.lab.rounding.scales import StoredScales, divide, into_blocks, read_scales, store_scales
from hwlessons.lab.rounding.values import checked_tensor, round_to


@dataclass(frozen=True)
class BlockQuantised:
    """A tensor as a block format stores it: codes packed to the bit, and scales.

    Attributes:
        format: the block format.
        shape: the shape of the tensor.
        dtype: the dtype of the tensor, which `dequantise` returns.
        packed: the elements' codes in memory order, packed into bytes.
        scales: what is kept of the scales.
    """

    format: BlockFormat
    shape: torch.Size
    dtype: torch.dtype
    packed: Tensor
    scales: StoredScales

    @property
    def stored_bytes(self) -> int:
        """Bytes of codes and scales, read from the tensors that hold them."""
        return self.packed.nbytes + self.scales.stored_bytes

    @property
    def bits_per_value(self) -> float:
        """Stored bits over the number of values, scales and constants included."""
        return 8 * self.stored_bytes / math.prod(self.shape)

    @property
    def block_scales(self) -> Tensor:
        """The fp32 scale of each block."""
        return read_scales(self.scales, self.format)

    @property
    def elements(self) -> Tensor:
        """The values before they are multiplied by their scales, in fp32 and the tensor's shape."""
        codes = unpack_codes(self.packed, self.format.element_bits, math.prod(self.shape))
        return _elements_of_codes(codes, self.format).reshape(self.shape)


@torch.no_grad()
def quantise(tensor: Tensor, format: BlockFormat | str) -> BlockQuantised:
    """Stores a tensor in a block format; blocks run along the last dimensions, in memory order.

    Args:
        tensor: finite values of any shape in fp64, fp32, fp16 or bf16. The arithmetic is in fp32: a value beyond it is
            refused, and one within a rounding of fp32's largest may come back as infinity.
        format: a block format or its name in `hwlessons.formulas.block_formats.BLOCK_FORMATS`.

    Raises:
        ValueError: if the input is no such tensor, is empty or holds infinities or NaN, or the format is unknown.
    """
    fmt = find_block_format(format)
    values = checked_tensor(tensor).float()
    if not values.numel() or not values.isfinite().all():
        raise ValueError(f"tensor must hold at least one value and only finite ones, got {_what_is_wrong(values)}")
    blocks = into_blocks(values, fmt.block_size)
    scales = store_scales(blocks.abs().amax(1), fmt)
    quotients = divide(blocks, read_scales(scales, fmt)[:, None])
    codes = _codes_of_elements(quotients.flatten()[: values.numel()], fmt)
    return BlockQuantised(fmt, tensor.shape, tensor.dtype, pack_codes(codes, fmt.element_bits), scales)


def dequantise(quantised: BlockQuantised) -> Tensor:
    """The values that a stored tensor stands for: each element times its block's scale, in the tensor's dtype."""
    blocks = into_blocks(quantised.elements, quantised.format.block_size)
    values = (blocks * quantised.block_scales[:, None]).flatten()[: math.prod(quantised.shape)]
    return values.reshape(quantised.shape).to(quantised.dtype)


def relative_rms_error(approximation: Tensor, reference: Tensor) -> float:
    """Root of the sum of squared errors over the sum of squared reference values, in fp64; 0 is exact.

    Raises:
        ValueError: if the shapes differ, or the reference has no value other than 0.
    """
    if approximation.shape != reference.shape:
        raise ValueError(f"shapes must be the same, got {tuple(approximation.shape)} and {tuple(reference.shape)}")
    norm = reference.double().norm()
    if not norm > 0:
        raise ValueError(f"the reference must have a value other than 0 and no NaN, got a norm of {norm.item()}")
    return ((approximation.double() - reference.double()).norm() / norm).item()


def quantisation_error(tensor: Tensor, format: BlockFormat | str) -> float:
    """The relative RMS error of storing a tensor in a block format; see `quantise` and `relative_rms_error`."""
    return relative_rms_error(dequantise(quantise(tensor, format)), tensor)


def _codes_of_elements(quotients: Tensor, fmt: BlockFormat) -> Tensor:
    if fmt.element not in INTEGER_BITS:
        return to_codes(round_to(quotients, fmt.element), fmt.element)
    rounded = quotients.round().clamp_(-fmt.element_max, fmt.element_max)
    return rounded.to(torch.int16).bitwise_and_(2**fmt.element_bits - 1).to(torch.uint8)  # two's complement


def _elements_of_codes(codes: Tensor, fmt: BlockFormat) -> Tensor:
    if fmt.element not in INTEGER_BITS:
        return from_codes(codes, fmt.element)
    return codes.float() - 2.0**fmt.element_bits * (codes > fmt.element_max)


def _what_is_wrong(values: Tensor) -> str:
    return str(values[~values.isfinite()][0].item()) if values.numel() else "none"
