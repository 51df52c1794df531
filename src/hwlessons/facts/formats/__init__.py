"""Number formats: what their bits mean, their limits, and single numbers to codes and back. Needs no torch.

`encode`, `decode` and their companions are written to be read: plain arithmetic on one number at a time. The vectorised
twin for tensors is `hwlessons.lab.rounding`.
"""

from hwlessons.facts.formats.catalogue import FORMATS, find_format, formats_table, published_limits
from hwlessons.facts.formats.codes import decode, decode_fields, encode, encode_fields
from hwlessons.facts.formats.fields import Fields, code_of_bits, code_of_fields, fields_of_code, write_bits
from hwlessons.facts.formats.grid import finite_values, neighbours, spacing
from hwlessons.facts.formats.number_format import NumberFormat, Overflow

__all__ = [
    "FORMATS",
    "Fields",
    "NumberFormat",
    "Overflow",
    "code_of_bits",
    "code_of_fields",
    "decode",
    "decode_fields",
    "encode",
    "encode_fields",
    "fields_of_code",
    "find_format",
    "finite_values",
    "formats_table",
    "neighbours",
    "published_limits",
    "spacing",
    "write_bits",
]
