"""Units of size, work and time: GiB (2**30) for capacity, GB (10**9) for bandwidth and traffic.

`UNITS` says for every unit that the book writes which quantity it measures and how many base units it is, so that
"9.6 GB" and "8.94 GiB" can be compared. The `format_…` functions round for reading only; nothing computes with text.
"""

from __future__ import annotations

import math
from typing import NamedTuple

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12

_SIZES = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "kB": KB, "KB": KB, "MB": MB, "GB": GB, "TB": TB}
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Z": 10**21}
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1, "seconds": 1, "min": 60, "minutes": 60, "h": 3600}
_COUNTED = ("parameters", "tokens", "elements", "samples", "values")


class Unit(NamedTuple):
    """What a unit measures, and how many base units (byte, FLOP, second, one) it is."""

    quantity: str
    factor: float


def _unit_table() -> dict[str, Unit]:
    sizes = {"B": 1, "byte": 1, "bytes": 1, **_SIZES}
    work = {f"{prefix}{word}": factor for prefix, factor in _PREFIXES.items() for word in ("FLOP", "FLOPs")}
    table = {unit: Unit("bytes", factor) for unit, factor in sizes.items()}
    table |= {unit: Unit("bits", factor) for unit, factor in {"bit": 1, "bits": 1}.items()}
    table |= {unit: Unit("flops", factor) for unit, factor in work.items()}
    table |= {unit: Unit("seconds", factor) for unit, factor in _SECONDS.items()}
    table |= {f"{unit}/s": Unit("bytes_per_second", factor) for unit, factor in sizes.items()}
    table |= {f"{unit}/s": Unit("flops_per_second", factor) for unit, factor in work.items()}
    table |= {unit: Unit(unit, 1) for unit in _COUNTED} | {
        f"{unit}/s": Unit(f"{unit}_per_second", 1) for unit in _COUNTED
    }
    return table | {
        "FLOP/byte": Unit("flops_per_byte", 1),
        "FLOP/B": Unit("flops_per_byte", 1),
        "%": Unit("fraction", 0.01),
    }


UNITS = _unit_table()


def is_time_or_rate(unit: str) -> bool:
    """Whether a unit is one of time or of something per second: a quantity that no formula predicts exactly."""
    quantity = UNITS[unit].quantity if unit in UNITS else ""
    return quantity == "seconds" or unit.endswith(("/s", "per second"))


def gib(num_bytes: float) -> float:
    """Bytes in GiB (2**30 bytes), not rounded."""
    return num_bytes / GIB


def gb(num_bytes: float) -> float:
    """Bytes in GB (10**9 bytes), not rounded."""
    return num_bytes / GB


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{what}={value} cannot be written with a unit; it must be a finite number")
    return value


def _three_digits(value: float) -> str:
    """Three significant digits, thousands with commas, and no exponent between 0.001 and a million."""
    magnitude = abs(float(f"{value:.2e}"))
    if magnitude == 0:
        return "0"
    if magnitude < 1e-3 or magnitude >= 1e6:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(magnitude)))
    return f"{value:,.{decimals}f}"


def _largest(value: float, steps: dict[str, float]) -> str:
    """The largest unit in which the value is at least 1 once printed with three digits; the smallest for less."""
    fitting = [unit for unit, factor in steps.items() if abs(value) >= 0.9995 * factor]
    return fitting[-1] if fitting else next(iter(steps))


def format_bytes(num_bytes: float) -> str:
    """Bytes for reading, in the largest binary unit that fits: `format_bytes(9_600_000_000)` is "8.94 GiB".

    Below 1 KiB a whole number of bytes is written as it is ("512 B").
    """
    if abs(_finite(num_bytes, "num_bytes")) < KIB and num_bytes == int(num_bytes):
        return f"{int(num_bytes):,} B"
    unit = _largest(num_bytes, {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB})
    return f"{_three_digits(num_bytes / UNITS[unit].factor)} {unit}"


def format_bytes_both(num_bytes: float) -> str:
    """Bytes in binary and in decimal units, because they differ by up to 10 %: "8.94 GiB (9.60 GB)"."""
    unit = _largest(_finite(num_bytes, "num_bytes"), {"B": 1, "kB": KB, "MB": MB, "GB": GB, "TB": TB})
    binary = format_bytes(num_bytes)
    if unit == "B" or binary.endswith(" B"):
        return binary
    return f"{binary} ({_three_digits(num_bytes / UNITS[unit].factor)} {unit})"


def format_count(count: float) -> str:
    """A count for reading: whole numbers below 10,000 exactly ("4,096"), larger ones as "600 M" or "6.74 B" (10**9)."""
    if abs(_finite(count, "count")) < 10_000:
        return f"{int(count):,}" if count == int(count) else _three_digits(count)
    unit = _largest(count, {"k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12})
    return f"{_three_digits(count / {'k': 10**3, 'M': 10**6, 'B': 10**9, 'T': 10**12}[unit])} {unit}"


def format_flops(num_flops: float) -> str:
    """A number of floating-point operations for reading: "1.31 TFLOP". A multiply-add is two."""
    prefix = _largest(_finite(num_flops, "num_flops"), dict(_PREFIXES))
    return f"{_three_digits(num_flops / _PREFIXES[prefix])} {prefix}FLOP"


def format_flops_per_second(flops_per_second: float) -> str:
    """A rate of floating-point operations for reading: "312 TFLOP/s"."""
    return f"{format_flops(flops_per_second)}/s"


def format_bytes_per_second(bytes_per_second: float) -> str:
    """A bandwidth for reading, in decimal units: "2.04 TB/s"."""
    steps: dict[str, float] = {"B": 1, "kB": KB, "MB": MB, "GB": GB, "TB": TB}
    unit = _largest(_finite(bytes_per_second, "bytes_per_second"), steps)
    return f"{_three_digits(bytes_per_second / steps[unit])} {unit}/s"


def format_seconds(seconds: float) -> str:
    """A time for reading: "17.0 µs", "3.25 ms", "1.50 s", and from two minutes on "12 min 5 s" or "3 h 20 min"."""
    if seconds == 0:
        return "0 s"
    if abs(_finite(seconds, "seconds")) < 120:
        unit = _largest(seconds, {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1})
        return f"{_three_digits(seconds / UNITS[unit].factor)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min"
