"""Rounding tensors to number formats, and storing them in blocks with shared scales.

The twin for one number, written to be read, is `hwlessons.facts.formats`.
"""

from hwlessons.lab.rounding.blocks import (
    BlockQuantised,
    dequantise,
    quantisation_error,
    quantise,
    relative_rms_error,
)
from hwlessons.lab.rounding.codes import from_codes, pack_codes, to_codes, unpack_codes
from hwlessons.lab.rounding.values import Rounding, round_to

__all__ = [
    "BlockQuantised",
    "Rounding",
    "dequantise",
    "from_codes",
    "pack_codes",
    "quantisation_error",
    "quantise",
    "relative_rms_error",
    "round_to",
    "to_codes",
    "unpack_codes",
]
