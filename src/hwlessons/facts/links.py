"""Links between devices: nominal rates, in one direction and with both directions summed.

The catalogue is read from `data/links.toml`, where every entry names its source and the day it was read.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hwlessons.units import GB


@dataclass(frozen=True)
class Link:
    """What connects a device with others.

    Attributes:
        name: the key in the catalogue, e.g. "nvlink-4".
        label: the name for reading, with the generation.
        family: "nvlink", "pcie", "infiniband" or "ethernet".
        one_way_bytes_per_second: nominal rate in one direction; what a ring's time is computed from.
        both_ways_bytes_per_second: both directions summed; what NVLink's data sheets print.
        source: where the rate stands.
    """

    name: str
    label: str
    family: str
    one_way_bytes_per_second: float
    both_ways_bytes_per_second: float
    source: str

    def seconds(self, num_bytes: float) -> float:
        """Seconds that `num_bytes` in one direction take at the nominal rate, without latency: a lower bound.

        Raises:
            ValueError: for a negative number of bytes.
        """
        if not num_bytes >= 0:
            raise ValueError(f"num_bytes must be at least 0, got {num_bytes!r}")
        return num_bytes / self.one_way_bytes_per_second


@cache
def load_links() -> dict[str, Link]:
    """All links by name, from the data file's order: NVLink, PCIe, InfiniBand, Ethernet."""
    entries = tomllib.loads(files("hwlessons.facts").joinpath("data/links.toml").read_text("utf8"))
    return {
        name: Link(
            name=name,
            label=entry["label"],
            family=entry["family"],
            one_way_bytes_per_second=entry["one_way"] * GB,
            both_ways_bytes_per_second=entry["both_ways_summed"] * GB,
            source=entry["source"],
        )
        for name, entry in entries.items()
    }


def link(name: str) -> Link:
    """One link of the catalogue.

    Raises:
        ValueError: if the catalogue has no such name; the message lists the names it has.
    """
    links = load_links()
    if name not in links:
        raise ValueError(f"unknown link {name!r}; the catalogue has {', '.join(links)}")
    return links[name]
