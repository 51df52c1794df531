"""The catalogue of links: complete entries, both ways of counting, and the published ratios."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from hwlessons.facts.links import link, load_links


def test_nvlink_against_pcie(published):
    case = published("hw_nvlink_over_pcie")
    pairs = [("nvlink-3", "pcie-4-x16"), ("nvlink-4", "pcie-5-x16"), ("nvlink-5", "pcie-5-x16")]
    both = [[link(name).both_ways_bytes_per_second for name in pair] for pair in pairs]
    assert [nvlink / 1e9 for nvlink, _ in both] == case.inputs["nvlink"]
    assert [pcie / 1e9 for _, pcie in both] == case.inputs["pcie_both_ways"]
    case.check([nvlink / pcie for nvlink, pcie in both])


def test_both_ways_is_twice_one_way_and_every_entry_is_sourced():
    text = files("hwlessons.facts").joinpath("data/links.toml").read_text("utf8")
    for name, entry in tomllib.loads(text).items():
        assert set(entry) == {"label", "family", "one_way", "both_ways_summed", "source", "read_on"}, name
        assert entry["both_ways_summed"] == 2 * entry["one_way"], name
        assert len(entry["source"]) > 20, name
        assert entry["family"] == name.partition("-")[0], name


def test_bit_rates_of_networks_are_eight_times_the_byte_rates():
    names = {"infiniband-hdr": 200, "infiniband-ndr": 400, "ethernet-100g": 100, "ethernet-10g": 10, "ethernet-1g": 1}
    assert set(names) == {n for n, found in load_links().items() if found.family in ("infiniband", "ethernet")}
    for name, gigabits in names.items():
        assert link(name).one_way_bytes_per_second * 8 == gigabits * 1e9


def test_time_on_a_link():
    assert link("nvlink-4").seconds(900e9) == 2.0
    with pytest.raises(ValueError, match="num_bytes must be at least 0, got -1"):
        link("nvlink-4").seconds(-1)
    with pytest.raises(ValueError, match="unknown link 'nvlink'; the catalogue has nvlink-1"):
        link("nvlink")
