"""A linear layer whose frozen weight is two 4-bit codes in each byte, dequantised whenever it is used."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake

from hwlessons.facts.formats import FORMATS, decode
from hwlessons.formulas.block_formats import BlockFormat, find_block_format
from hwlessons.lab.rounding import quantise


def pair_table(format: str = "nf4") -> Tensor:
    """The two values that each byte stands for, (256, 2) fp32, the lower four bits first."""
    values = [decode(code, FORMATS[format]) for code in range(16)]
    return torch.tensor([[values[byte & 15], values[byte >> 4]] for byte in range(256)])


class QuantisedLinear(nn.Module):
    """`nn.Linear` with its weight in a 4-bit block format; the weight is frozen, and so is the bias.

    All of the weight's tensors are buffers of bytes, also the fp32 scales, so that `model.to(dtype)` leaves them alone.
    Forward dequantises the weight in fp32, casts it to the compute dtype (autocast's, or else the input's) and throws
    it away; backward does so again. The bytes are exactly `format.stored_bytes(in_features * out_features)`, and once
    for the whole model the table of what each byte means.

    Args:
        linear: the layer to replace; a weight without values (traced, or on the meta device) gets codes without values.
        format: "nf4" or "nf4_double".
        pairs: `pair_table()` on the weight's device, one for all layers.

    Raises:
        ValueError: for another format, or a number of weights that the block size does not divide.
    """

    packed: Tensor
    pairs: Tensor

    def __init__(self, linear: nn.Linear, format: BlockFormat | str, pairs: Tensor) -> None:
        super().__init__()
        self.format = find_block_format(format)
        if self.format.element != "nf4":
            raise ValueError(f"format must be nf4 or nf4_double, got {self.format.name!r}")
        self.sizes = (linear.out_features, linear.in_features)
        num_blocks = self.format.whole_blocks(linear.weight.numel(), "weight")
        self.bias = linear.bias
        self.requires_grad_(False)
        tensors = _stored(linear.weight.detach(), num_blocks, self.format)
        names = ("packed", "block_scales", "scales_of_scales", "mean_scale")[: len(tensors)]
        for name, tensor in zip(names, tensors, strict=True):
            self.register_buffer(name, tensor.view(torch.uint8))
        self.register_buffer("pairs", pairs.view(torch.uint8), persistent=False)
        self.stored_names = names

    @property
    def stored(self) -> tuple[Tensor, ...]:
        """The weight's buffers: codes, scales and, with double quantisation, the scales' scales and their mean."""
        return tuple(getattr(self, name) for name in self.stored_names)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all of them, read from their storages."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.stored)

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight, (out, in)."""
        return _dequantise(self.pairs, self.stored, self.sizes, self.format, dtype)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        out: Tensor = _Product.apply(x, self.bias, self.sizes, self.format, self.pairs, *self.stored)
        return out


class _Product(torch.autograd.Function):
    """x @ dequantised weight, of which backward needs only the packed tensors."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, bias: Tensor | None, sizes: tuple[int, int], format: BlockFormat, *tensors: Tensor
    ) -> Tensor:
        ctx.sizes, ctx.format = sizes, format
        ctx.save_for_backward(*tensors)
        return F.linear(x, _dequantise(tensors[0], tensors[1:], sizes, format, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        pairs, *stored = ctx.saved_tensors
        weight = _dequantise(pairs, tuple(stored), ctx.sizes, ctx.format, gradient.dtype)
        return (gradient @ weight, *[None] * (4 + len(stored)))


def _dequantise(
    pairs: Tensor, stored: tuple[Tensor, ...], sizes: tuple[int, int], format: BlockFormat, dtype: torch.dtype
) -> Tensor:
    packed, block_scales, *second = stored
    if second:
        scales = block_scales.view(torch.float8_e4m3fn).float()
        repeated = second[0].view(torch.float32).repeat_interleave(format.scale_block_size)
        scales = scales.mul_(repeated[: len(scales)]).add_(second[1].view(torch.float32))
        del repeated
    else:
        scales = block_scales.view(torch.float32)
    values = F.embedding(packed.int(), pairs.view(torch.float32))
    values.view(-1, format.block_size).mul_(scales[:, None])
    return values.view(sizes).to(dtype)


def _stored(weight: Tensor, num_blocks: int, format: BlockFormat) -> tuple[Tensor, ...]:
    if weight.is_meta or is_fake(weight):
        sizes = [weight.numel() // 2]
        if format.scale_block_size:
            sizes += [num_blocks, 4 * -(-num_blocks // format.scale_block_size), 4]
        else:
            sizes += [4 * num_blocks]
        return tuple(weight.new_empty(size, dtype=torch.uint8) for size in sizes)
    quantised = quantise(weight, format)
    scales = quantised.scales
    second = (scales.scale_blocks, scales.tensor_constant) if format.scale_block_size else ()
    return (quantised.packed, scales.blocks, *second)
