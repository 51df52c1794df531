"""Units: conversion factors, and how numbers are written."""

import math

import pytest

from hwlessons import units


def test_600_million_fp32_adam_parameters_are_9_6_gb_and_8_94_gib() -> None:
    num_bytes = 600_000_000 * 16
    assert units.gb(num_bytes) == 9.6
    assert units.gib(num_bytes) == pytest.approx(8.94, abs=0.005)
    assert units.format_bytes_both(num_bytes) == "8.94 GiB (9.60 GB)"


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (512, "512 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1536, "1.50 KiB"), (0.5, "0.500 B"),
     (2**30 - 1, "1.00 GiB"), (143_771 * 2**20, "140 GiB"), (2**40 * 1000, "1,000 TiB"), (-2048, "-2.00 KiB")],
)  # fmt: skip
def test_bytes_are_written_in_the_largest_binary_unit(num_bytes: float, text: str) -> None:
    assert units.format_bytes(num_bytes) == text


def test_small_sizes_are_not_written_twice() -> None:
    assert units.format_bytes_both(512) == "512 B"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (4096, "4,096"), (9_999, "9,999"), (600_000_000, "600 M"), (6_738_415_616, "6.74 B"), (2.5, "2.50"),
     (999_999, "1.00 M")],
)  # fmt: skip
def test_counts(count: float, text: str) -> None:
    assert units.format_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.7e-5, "17.0 µs"), (3.25e-3, "3.25 ms"), (1.5, "1.50 s"), (119, "119 s"), (725, "12 min 5 s"),
     (12_000, "3 h 20 min"), (0, "0 s"), (3599.7, "60 min 0 s")],
)  # fmt: skip
def test_times(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


def test_work_and_rates() -> None:
    assert units.format_flops(1.312e12) == "1.31 TFLOP"
    assert units.format_flops_per_second(312e12) == "312 TFLOP/s"
    assert units.format_bytes_per_second(2.039e12) == "2.04 TB/s"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    for write in (units.format_bytes, units.format_count, units.format_flops, units.format_seconds):
        with pytest.raises(ValueError, match="must be a finite number"):
            write(value)


def test_the_unit_table_converts_between_binary_and_decimal() -> None:
    assert units.UNITS["GiB"] == ("bytes", 2**30)
    assert units.UNITS["GB"] == ("bytes", 10**9)
    assert units.UNITS["TFLOP/s"] == ("flops_per_second", 10**12)
    assert units.UNITS["%"] == ("fraction", 0.01)


def test_only_times_and_rates_are_times_and_rates() -> None:
    assert all(map(units.is_time_or_rate, ("ms", "s", "GB/s", "tokens/s", "steps per second")))
    assert not any(map(units.is_time_or_rate, ("B", "bytes", "FLOP", "", "parameters")))
