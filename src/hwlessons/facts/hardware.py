"""Accelerators as their makers describe them, and the bytes that a driver reports.

The catalogue is read from `data/accelerators.toml`, where every entry names its source and the day it was read. Rates
are dense: what a maker quotes for 2:4 sparse matrices is twice as much and no training step reaches it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from hwlessons.units import GB, MIB

RATES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp16_accumulated_in_fp16", "fp8", "fp4")


@dataclass(frozen=True)
class Accelerator:
    """One accelerator; None where a source does not say.

    Attributes:
        name: its name in the catalogue, e.g. "H100-SXM".
        generation: the maker's architecture, e.g. "Hopper".
        memory_gb: capacity as it is sold.
        memory_type: e.g. "HBM3".
        memory_bytes: what the driver reports (`nvidia-smi`, memory.total).
        bandwidth_bytes_per_second: of its memory.
        dense_flops_per_second: by dtype, without sparsity. "fp32" is outside the matrix units; "fp16" is accumulated in
            fp32.
        nvlink_bytes_per_second: to its neighbours, both directions together.
        pcie_bytes_per_second: to the host, both directions together.
        watts: the most that it draws.
        num_fp32_cores: lanes that each do one fp32 multiply-add per cycle.
        source: where the numbers stand.
        memory_source: where `memory_bytes` stands.
        read_on: the day they were read.
    """

    name: str
    generation: str
    memory_gb: int
    memory_type: str
    bandwidth_bytes_per_second: float
    dense_flops_per_second: Mapping[str, float]
    source: str
    read_on: date
    memory_bytes: int | None = None
    memory_source: str = ""
    nvlink_bytes_per_second: float | None = None
    pcie_bytes_per_second: float | None = None
    watts: int | None = None
    num_fp32_cores: int | None = None

    @property
    def capacity_bytes(self) -> int:
        """What a plan may count on: the bytes that the driver reports, or else `memory_gb` read as 10**9 bytes each."""
        return self.memory_gb * GB if self.memory_bytes is None else self.memory_bytes

    @property
    def capacity_is_reported(self) -> bool:
        """Whether `capacity_bytes` is a driver's word."""
        return self.memory_bytes is not None

    def flops_per_second(self, dtype: str) -> float:
        """The dense peak for a dtype, in FLOP/s; a multiply-add is two.

        Raises:
            ValueError: if the catalogue has no such rate, or a sparse one is asked for.
        """
        if "sparse" in dtype:
            raise ValueError(f"rates are dense, got {dtype!r}; a sparse rate is no peak for training")
        if dtype not in self.dense_flops_per_second:
            known = ", ".join(self.dense_flops_per_second)
            raise ValueError(f"no {dtype!r} rate of {self.name} is catalogued; there are {known}")
        return self.dense_flops_per_second[dtype]


def accelerator_of(name: str, entry: Mapping[str, Any]) -> Accelerator:
    """One entry of the data file; rates are TFLOP/s there, bandwidths GB/s, and the reported memory is MiB.

    Raises:
        ValueError: if a rate or another key is unknown, or a number is not above 0.
    """
    given = dict(entry)
    rates = {dtype: _positive(name, dtype, tera) * 1e12 for dtype, tera in given.pop("dense_tflops").items()}
    if unknown := [dtype for dtype in rates if dtype not in RATES]:
        raise ValueError(f"{name}: dense_tflops must be of {', '.join(RATES)}, got {', '.join(unknown)}")
    values: dict[str, Any] = {
        "dense_flops_per_second": MappingProxyType({dtype: rates[dtype] for dtype in RATES if dtype in rates}),
        "bandwidth_bytes_per_second": _positive(name, "bandwidth_gb_per_second", given.pop("bandwidth_gb_per_second"))
        * GB,
    }
    if "memory_mib_reported" in given:
        values["memory_bytes"] = _positive(name, "memory_mib_reported", given.pop("memory_mib_reported")) * MIB
    for link in ("nvlink", "pcie"):
        if (key := f"{link}_gb_per_second") in given:
            values[f"{link}_bytes_per_second"] = _positive(name, key, given.pop(key)) * GB
    for key in ("memory_gb", "watts", "num_fp32_cores"):
        _positive(name, key, given.get(key, 1))
    if unknown := sorted(set(given) - {field.name for field in fields(Accelerator)}):
        raise ValueError(f"{name}: unknown keys {', '.join(unknown)}")
    return Accelerator(name=name, **given, **values)


@cache
def load_accelerators() -> Mapping[str, Accelerator]:
    """The catalogue by name, from the smallest memory to the largest."""
    entries = tomllib.loads(files("hwlessons.facts").joinpath("data/accelerators.toml").read_text("utf8"))
    cards = [accelerator_of(name, entry) for name, entry in entries.items()]
    return MappingProxyType({card.name: card for card in sorted(cards, key=lambda card: card.memory_gb)})


def find_accelerator(name: str) -> Accelerator:
    """One accelerator.

    Raises:
        ValueError: if the catalogue has no such name; the message lists the names it has.
    """
    cards = load_accelerators()
    if name not in cards:
        raise ValueError(f"unknown accelerator {name!r}; the catalogue has {', '.join(cards)}")
    return cards[name]


def _positive(name: str, key: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{name}: {key} must be a number above 0, got {value!r}")
    return value
