"""The number formats by name, read from `data/formats.toml`, where every entry names its source."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from hwlessons.facts.formats.number_format import NumberFormat

LAYOUT = ["name", "bits", "storage_bits", "exponent_bits", "fraction_bits", "bias", "specials", "has_sign"]
LAYOUT += ["has_subnormals", "source"]
LIMITS = ["max", "min_normal", "min_subnormal", "eps", "has_infinity", "has_nan", "has_zero"]


def _load() -> dict[str, NumberFormat]:
    entries = tomllib.loads(files("hwlessons.facts").joinpath("data/formats.toml").read_text("utf8"))
    return {
        name: NumberFormat(name=name, **{key: value for key, value in entry.items() if key != "compared_on"})
        for name, entry in entries.items()
    }


FORMATS: dict[str, NumberFormat] = _load()


def find_format(format: NumberFormat | str) -> NumberFormat:
    """A number format by name; a format comes back as it is.

    Raises:
        ValueError: if there is no format of that name; the message lists the names.
    """
    if isinstance(format, NumberFormat):
        return format
    if not isinstance(format, str) or format not in FORMATS:
        raise ValueError(f"unknown number format {format!r}; there are {', '.join(FORMATS)}")
    return FORMATS[format]


def formats_table() -> dict[str, dict[str, Any]]:
    """What a page needs to compute with the formats, by name, ready for JSON (`max_fields` is a list)."""
    return {
        name: {key: getattr(fmt, key) for key in LAYOUT + LIMITS}
        | {"codebook": list(fmt.codebook), "max_fields": None if fmt.codebook else list(fmt.max_fields)}
        for name, fmt in FORMATS.items()
    }


def published_limits() -> dict[str, tuple[float, float, float]]:
    """Largest, smallest normal and smallest subnormal number as the specifications print them, for formats of OCP.

    They are read from `data/published_limits.toml`, which names the sources, and are not what `FORMATS` computes with.
    """
    text = files("hwlessons.facts").joinpath("data/published_limits.toml").read_text("utf8")
    return {name: tuple(entry["limits"]) for name, entry in tomllib.loads(text).items()}
