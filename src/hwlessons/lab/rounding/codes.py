"""Codes of whole tensors, and codes of fewer than 8 bits packed into bytes."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from hwlessons.facts.formats import NumberFormat, decode, find_format


@cache
def _values_by_code(fmt: NumberFormat) -> tuple[float, ...]:
    # numbers and no tensor: a tensor that outlives the call would be counted as some step's memory
    if fmt.bits > 8:
        raise ValueError(f"only formats of at most 8 bits have codes here, got {fmt.name} with {fmt.bits}")
    return tuple(decode(code, fmt) for code in range(fmt.num_codes))


@torch.no_grad()
def to_codes(rounded: Tensor, format: NumberFormat | str) -> Tensor:
    """The codes of values that are already numbers of a format (see `round_to`), as uint8; minus zero becomes zero.

    Raises:
        ValueError: if the format is unknown or has more than 8 bits, or a value is not one of its finite numbers.
    """
    fmt = find_format(format)
    by_code = torch.tensor(_values_by_code(fmt), device=rounded.device)
    ascending, codes = by_code.nan_to_num(torch.inf).sort(stable=True)  # of two zeros, the one with code 0 comes first
    place = torch.searchsorted(ascending, rounded.float().contiguous()).clamp_(max=fmt.num_codes - 1)
    is_held = (ascending[place] == rounded) & rounded.isfinite()
    if not is_held.all():
        raise ValueError(f"values must be finite numbers of {fmt.name}, got {rounded[~is_held][0].item()}")
    return codes.to(torch.uint8)[place]


def from_codes(codes: Tensor, format: NumberFormat | str) -> Tensor:
    """The numbers that codes mean, in fp32.

    Raises:
        ValueError: if the format is unknown or has more than 8 bits.
    """
    return torch.tensor(_values_by_code(find_format(format)), device=codes.device)[codes.long()]


def pack_codes(codes: Tensor, num_bits: int) -> Tensor:
    """The lowest `num_bits` of every code one after the other, the last byte filled up with zeros; uint8."""
    if num_bits == 8:
        return codes.flatten()
    bits = (codes.reshape(-1, 1) >> _shifts(num_bits, codes)).bitwise_and_(1).flatten()
    bytes_of_bits = torch.nn.functional.pad(bits, (0, -len(bits) % 8)).reshape(-1, 8)
    return (bytes_of_bits << _shifts(8, codes)).sum(1, dtype=torch.uint8)


def unpack_codes(packed: Tensor, num_bits: int, num_codes: int) -> Tensor:
    """The first `num_codes` codes of bytes that `pack_codes` made; uint8."""
    if num_bits == 8:
        return packed[:num_codes]
    bits = (packed.reshape(-1, 1) >> _shifts(8, packed)).bitwise_and_(1).flatten()
    codes = bits[: num_codes * num_bits].reshape(-1, num_bits)
    return (codes << _shifts(num_bits, packed)).sum(1, dtype=torch.uint8)


def _shifts(num_bits: int, like: Tensor) -> Tensor:
    return torch.arange(num_bits, dtype=torch.uint8, device=like.device)
