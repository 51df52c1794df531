"""Scales of block formats: from the largest magnitude of each block to what is stored, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hwlessons.facts.formats import FORMATS
from hwlessons.formulas.block_formats import BlockFormat
from hwlessons.lab.rounding.codes import from_codes, to_codes
from hwlessons.lab.rounding.values import round_to


@dataclass(frozen=True)
class StoredScales:
    """What a block format keeps of its scales.

    Attributes:
        blocks: one scale for each block: fp32 numbers, or uint8 codes of the scale's format.
        scale_blocks: fp32 scales that blocks of scales share; empty without double quantisation.
        tensor_constant: one fp32 number for the tensor (NVFP4's scale, QLoRA's mean); empty for other formats.
    """

    blocks: Tensor
    scale_blocks: Tensor
    tensor_constant: Tensor

    @property
    def stored_bytes(self) -> int:
        """Bytes of all three."""
        return self.blocks.nbytes + self.scale_blocks.nbytes + self.tensor_constant.nbytes


def store_scales(amax: Tensor, fmt: BlockFormat) -> StoredScales:
    """The scales for blocks with the largest magnitudes `amax` (fp32), as the format stores them."""
    nothing = amax.new_empty(0)
    if fmt.scale_rule == "absmax":
        return StoredScales(amax / fmt.element_max, nothing, nothing)
    if fmt.scale_rule == "power_of_two":
        exponent = amax.frexp().exponent - 1 - FORMATS[fmt.element].max_exponent  # frexp's mantissa is below 1
        scale = FORMATS["e8m0"]
        codes = torch.where(amax > 0, exponent - scale.min_exponent, 0).clamp_(0, scale.max_code)
        return StoredScales(codes.to(torch.uint8), nothing, nothing)
    wanted = amax / fmt.element_max
    if fmt.scale_rule == "two_level":
        constant = wanted.amax() / FORMATS[fmt.scale].max
        return StoredScales(_codes_of_quotient(wanted, constant, fmt), nothing, constant.reshape(1))
    constant = wanted.mean()
    blocks = into_blocks(wanted - constant, fmt.scale_block_size)
    scale_blocks = blocks.abs().amax(1) / FORMATS[fmt.scale].max
    codes = _codes_of_quotient(blocks, scale_blocks[:, None], fmt).flatten()[: len(amax)]
    return StoredScales(codes.clone(), scale_blocks, constant.reshape(1))


def read_scales(stored: StoredScales, fmt: BlockFormat) -> Tensor:
    """The fp32 scale of each block."""
    if fmt.scale_rule == "absmax":
        return stored.blocks
    scales = from_codes(stored.blocks, fmt.scale)
    if fmt.scale_rule == "power_of_two":
        return scales
    if fmt.scale_rule == "two_level":
        return scales * stored.tensor_constant
    return scales * stored.scale_blocks.repeat_interleave(fmt.scale_block_size)[: len(scales)] + stored.tensor_constant


def into_blocks(values: Tensor, block_size: int) -> Tensor:
    """Values in memory order as [blocks, block_size], the last block filled up with zeros."""
    flat = values.flatten()
    return torch.nn.functional.pad(flat, (0, -len(flat) % block_size)).reshape(-1, block_size)


def divide(values: Tensor, scales: Tensor) -> Tensor:
    """Values over scales, and 0 under a scale of 0, which can hold nothing else."""
    return torch.where(scales == 0, 0.0, values / scales)


def _codes_of_quotient(values: Tensor, scale: Tensor, fmt: BlockFormat) -> Tensor:
    return to_codes(round_to(divide(values, scale), fmt.scale), fmt.scale)
