"""Block formats: few bits for each value, and scales that blocks of values share; what that costs in bits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from hwlessons.counts import check_count
from hwlessons.facts.formats import FORMATS, find_format

ScaleRule = Literal["absmax", "power_of_two", "two_level", "double_quantised"]
INTEGER_BITS = {"int8": 8, "int4": 4}
FP32_BITS = 32


@dataclass(frozen=True)
class BlockFormat:
    """A way of storing a tensor as elements of a small format and scales that blocks of elements share.

    Blocks are runs of `block_size` values in memory order; the last one may be shorter.

    Attributes:
        name: a label, and the key in `BLOCK_FORMATS`.
        element: the format of one value: a number format, "int8" or "int4".
        block_size: values that share a scale.
        scale: the number format of a block's scale.
        scale_rule: how scales follow from the largest magnitude of a block (amax) and of the tensor:
            "absmax": amax / element_max, so that the largest value fits exactly.
            "power_of_two": 2 ** (floor(log2(amax)) - exponent of element_max): MX's rule, under which a block's largest
            values may saturate.
            "two_level": amax / element_max, itself stored as a multiple of one fp32 scale of the tensor (NVFP4).
            "double_quantised": absmax scales minus their mean, stored in blocks with fp32 scales of their own (QLoRA).
        scale_block_size: scales that share one fp32 scale of their own; 0 for none.
        num_tensor_constants: fp32 numbers kept once for the whole tensor.
        source: where the format is defined.

    Raises:
        ValueError: if the block size is below 1, or a format or the rule is unknown.
    """

    name: str
    element: str
    block_size: int
    scale: str
    scale_rule: ScaleRule
    scale_block_size: int = 0
    num_tensor_constants: int = 0
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size)
        if self.scale_rule not in get_args(ScaleRule):
            raise ValueError(f"scale_rule must be one of {', '.join(get_args(ScaleRule))}, got {self.scale_rule!r}")
        for number_format in {self.element, self.scale} - set(INTEGER_BITS):
            find_format(number_format)

    @property
    def element_bits(self) -> int:
        """Bits of one value without its share of the scales."""
        return INTEGER_BITS.get(self.element) or FORMATS[self.element].bits

    @property
    def element_max(self) -> float:
        """The largest element; integers are symmetric, so that -128 and -8 stay unused."""
        if self.element in INTEGER_BITS:
            return float(2 ** (self.element_bits - 1) - 1)
        return FORMATS[self.element].max

    @property
    def scale_bits_per_value(self) -> float:
        """What the scales add to each value of a long tensor, in bits."""
        own = FORMATS[self.scale].bits / self.block_size
        return own + (FP32_BITS / (self.block_size * self.scale_block_size) if self.scale_block_size else 0.0)

    @property
    def bits_per_value(self) -> float:
        """Bits per value of a long tensor, scales included; fp32 numbers kept once per tensor vanish."""
        return self.element_bits + self.scale_bits_per_value

    def stored_bytes(self, num_values: int) -> int:
        """Bytes of a tensor of `num_values` values: elements packed to whole bytes, all scales, constants.

        Raises:
            ValueError: if `num_values` is below 1.
        """
        check_count("num_values", num_values)
        num_blocks = -(-num_values // self.block_size)
        num_scale_blocks = -(-num_blocks // self.scale_block_size) if self.scale_block_size else 0
        element_bytes = -(-num_values * self.element_bits // 8)
        scale_bytes = num_blocks * FORMATS[self.scale].bits // 8
        return element_bytes + scale_bytes + (num_scale_blocks + self.num_tensor_constants) * FP32_BITS // 8

    def whole_blocks(self, num_values: int, name: str) -> int:
        """Number of blocks of a tensor that consists of whole ones.

        Raises:
            ValueError: if the block size does not divide `num_values`; the message calls the tensor `name`.
        """
        if num_values % self.block_size:
            raise ValueError(
                f"{name} must have a multiple of {self.block_size} values (the block of {self.name}), got {num_values}"
            )
        return num_values // self.block_size

    def with_block_size(self, block_size: int) -> BlockFormat:
        """The same format with other blocks."""
        return replace(self, block_size=block_size)


_QLORA = "Dettmers et al. 2023, QLoRA (arXiv:2305.14314), sections 2 and 3"
_OCP_MX = "OCP Microscaling Formats (MX) 1.0, table 1 and section 6.3"
_NVFP4 = "NVIDIA Transformer Engine documentation, NVFP4: blocks of 16, E4M3 scales, one FP32 scale per tensor"
_MX = {"mxfp8": ("e4m3", "e5m2"), "mxfp6": ("e3m2", "e2m3"), "mxfp4": ("e2m1",)}

_BLOCK_FORMATS = (
    BlockFormat("int8", "int8", 64, "fp32", "absmax", source=f"{_QLORA}: block-wise absmax quantisation, equation 1"),
    BlockFormat("int4", "int4", 64, "fp32", "absmax", source=f"{_QLORA}: the same with 4 bits"),
    BlockFormat("nf4", "nf4", 64, "fp32", "absmax", source=f"{_QLORA}: 4-bit NormalFloat"),
    BlockFormat(
        "nf4_double",
        "nf4",
        64,
        "e4m3",
        "double_quantised",
        scale_block_size=256,
        num_tensor_constants=1,
        source=f"{_QLORA}: double quantisation; the paper says 8-bit floats, which is e4m3 here",
    ),
    *(
        BlockFormat(f"{family}_{element}", element, 32, "e8m0", "power_of_two", source=_OCP_MX)
        for family, elements in _MX.items()
        for element in elements
    ),
    BlockFormat("nvfp4", "e2m1", 16, "e4m3", "two_level", num_tensor_constants=1, source=_NVFP4),
)
BLOCK_FORMATS: dict[str, BlockFormat] = {fmt.name: fmt for fmt in _BLOCK_FORMATS}


def find_block_format(format: BlockFormat | str) -> BlockFormat:
    """A block format by name; a block format comes back as it is.

    Raises:
        ValueError: if there is no block format of that name; the message lists the names.
    """
    if isinstance(format, BlockFormat):
        return format
    if not isinstance(format, str) or format not in BLOCK_FORMATS:
        raise ValueError(f"unknown block format {format!r}; there are {', '.join(BLOCK_FORMATS)}")
    return BLOCK_FORMATS[format]
