"""The published numbers are well formed, and those on finished topics are each named in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FINISHED_TOPICS = {
    "activations",
    "communication",
    "formats",
    "gradient accumulation",
    "hardware",
    "kv cache",
    "lora",
    "mixed precision",
    "model states",
    "mx",
    "parameter count",
    "pipeline",
    "qlora",
    "rounding",
    "sharding",
}


def test_every_case_has_a_source_and_a_known_kind(cases):
    assert len(cases) == 88
    for case in cases.values():
        assert case.source and case.unit, case.id
        assert case.kind in {"published", "formula", "measured"}, case.id
        assert set(case.tolerance) <= {"rel", "abs"} and case.tolerance, case.id


def test_every_case_of_a_finished_topic_is_named_in_a_test(cases):
    text = "\n".join(path.read_text("utf8") for path in TESTS.rglob("test_*.py"))
    missing = [case.id for case in cases.values() if case.topic in FINISHED_TOPICS and f'"{case.id}"' not in text]
    assert not missing


def test_a_case_refuses_values_outside_its_tolerance(published):
    published("states_600M_fp32").check({"bytes": 9_600_000_000, "GiB": 8.9407})
    with pytest.raises(AssertionError, match=r"states_600M_fp32\.GiB: 9\.6 instead of 8\.94"):
        published("states_600M_fp32").check({"bytes": 9_600_000_000, "GiB": 9.6})
    with pytest.raises(AssertionError, match="keys"):
        published("states_600M_fp32").check({"bytes": 9_600_000_000})
    with pytest.raises(AssertionError, match="1 values instead of 2"):
        published("act_crossover_seq").check([435.2])
