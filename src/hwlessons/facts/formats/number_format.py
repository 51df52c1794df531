"""A number format as the layout of its bits; its limits follow from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hwlessons.facts.formats.code_set import CodeSet

Overflow = Literal["saturate", "nonsaturating"]
SPECIALS = ("ieee", "nan", "none")


@dataclass(frozen=True)
class NumberFormat:
    """How a format uses its bits, from the highest: sign, exponent, fraction; or a table of values (`codebook`).

    Attributes:
        name: a label, and the key in `FORMATS`.
        bits: how many bits a value has.
        exponent_bits: bits of the exponent field; 0 with a codebook.
        fraction_bits: bits after the binary point; 0 with a codebook.
        bias: what is subtracted from the exponent field; None with a codebook.
        specials: "ieee" (the largest exponent field means infinity or NaN), "nan" (only the last code is NaN), "none".
        has_sign: whether the highest bit is a sign.
        has_subnormals: whether exponent field 0 means zero and the subnormal values.
        codebook: the value of every code, in code order; empty for a floating-point format.
        storage_bits: bits that a value takes in memory; differs from `bits` only for tf32.
        source: where the layout stands.

    Raises:
        ValueError: if the fields do not add up to `bits`, or the codebook has not one value for each code.
    """

    name: str
    bits: int
    exponent_bits: int = 0
    fraction_bits: int = 0
    bias: int | None = None
    specials: str = "none"
    has_sign: bool = True
    has_subnormals: bool = True
    codebook: Sequence[float] = field(default=(), repr=False)
    storage_bits: int = 0
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "codebook", tuple(float(value) for value in self.codebook))
        object.__setattr__(self, "storage_bits", self.storage_bits or self.bits)
        if self.specials not in SPECIALS:
            raise ValueError(f"specials must be one of {', '.join(SPECIALS)}, got {self.specials!r}")
        if self.codebook:
            if len(self.codebook) != self.num_codes:
                raise ValueError(
                    f"a codebook of {self.bits} bits must have {self.num_codes} values, got {len(self.codebook)}"
                )
        elif self.bias is None or self.has_sign + self.exponent_bits + self.fraction_bits != self.bits:
            raise ValueError(
                f"{self.name} must have a bias and {self.bits} bits, got bias {self.bias} and "
                f"{int(self.has_sign)} + {self.exponent_bits} + {self.fraction_bits} bits"
            )

    @property
    def num_codes(self) -> int:
        """How many bit patterns there are: 2 ** bits."""
        return 2**self.bits

    @property
    def sign_code(self) -> int:
        """What a minus sign adds to a code: the weight of the sign bit, or 0 without one."""
        return 2 ** (self.bits - 1) if self.has_sign else 0

    @property
    def num_magnitude_codes(self) -> int:
        """How many codes there are without the sign bit."""
        return self.sign_code or self.num_codes

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal number; subnormals share it. Floating-point formats only."""
        assert self.bias is not None, f"{self.name} has no exponent"
        return 1 - self.bias if self.has_subnormals else -self.bias

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest number. Floating-point formats only."""
        assert self.bias is not None, f"{self.name} has no exponent"
        return self.max_fields[0] - self.bias

    @property
    def max_code(self) -> int:
        """The code of the largest finite number."""
        if self.codebook:
            return self.codebook.index(max(self.codebook))
        if self.specials == "ieee":
            return self.num_magnitude_codes - 2**self.fraction_bits - 1
        return self.num_magnitude_codes - (2 if self.specials == "nan" else 1)

    @property
    def max_fields(self) -> tuple[int, int]:
        """Exponent and fraction field of the largest finite number. Floating-point formats only."""
        exponent, fraction = divmod(self.max_code, 2**self.fraction_bits)
        return exponent, fraction

    @property
    def max(self) -> float:
        """The largest finite number."""
        if self.codebook:
            return max(self.codebook)
        significand = 2**self.fraction_bits + self.max_fields[1]
        return significand * 2.0 ** (self.max_exponent - self.fraction_bits)

    @property
    def min_normal(self) -> float | None:
        """The smallest positive number of full precision; None with a codebook."""
        return None if self.codebook else 2.0**self.min_exponent

    @property
    def min_subnormal(self) -> float | None:
        """The smallest positive subnormal number; None where a format has none."""
        return 2.0 ** (self.min_exponent - self.fraction_bits) if self.has_subnormals and not self.codebook else None

    @property
    def eps(self) -> float | None:
        """The step from 1 to the next larger number; None where a format has no fraction (e8m0, nf4)."""
        return 2.0**-self.fraction_bits if self.fraction_bits else None

    @property
    def has_infinity(self) -> bool:
        """Whether some code means infinity."""
        return self.specials == "ieee"

    @property
    def has_nan(self) -> bool:
        """Whether some code means NaN."""
        return self.specials != "none"

    @property
    def has_zero(self) -> bool:
        """Whether some code means zero."""
        return 0.0 in self.codebook if self.codebook else self.has_subnormals

    @property
    def infinity_codes(self) -> tuple[int, ...]:
        """The codes of plus and minus infinity; empty where a format has none."""
        return (self.max_code + 1, self.max_code + 1 + self.sign_code) if self.has_infinity else ()

    @property
    def nan_codes(self) -> CodeSet:
        """Every code that means NaN, in order; a sequence that takes no memory, as fp64 has 2**53 - 2 of them."""
        first = self.max_code + (2 if self.has_infinity else 1)
        positive = range(first, self.num_magnitude_codes if self.has_nan else first)
        negative = range(first + self.sign_code, self.num_codes if self.has_nan and self.sign_code else 0)
        return CodeSet(positive, negative)

    @property
    def nan_code(self) -> int | None:
        """The code written for a NaN: quiet, with sign 0; None where a format has none."""
        if self.specials == "ieee":
            return self.max_code + 1 + 2 ** (self.fraction_bits - 1)
        return self.num_magnitude_codes - 1 if self.has_nan else None

    @property
    def overflow_value(self) -> float:
        """What a number that is too large becomes without saturation: infinity, else NaN, else still the maximum."""
        return math.inf if self.has_infinity else math.nan if self.has_nan else self.max
