"""What all tests share: where the checkout is, and published numbers to test against (`published` finds one by id)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from hwlessons.publish.paths import Project

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def project() -> Project:
    """The checkout that these tests belong to."""
    return Project(ROOT)


@pytest.fixture(scope="session")
def in_ci() -> bool:
    """Whether this is a run of CI, where a test that cannot run is a failure."""
    return os.environ.get("CI", "").lower() == "true"


CASES_FILE = ROOT / "tests" / "data" / "published_numbers.json"


@dataclass(frozen=True)
class Case:
    """One published or computed number: what goes in, what must come out, and within which tolerance."""

    id: str
    topic: str
    inputs: Mapping[str, Any]
    expected: Any
    tolerance: Mapping[str, float]
    unit: str
    source: str
    kind: str
    note: str = ""

    def check(self, actual: Any) -> None:
        """Compare `actual` with `expected`, through lists and dictionaries, and fail with both values."""
        self._check(actual, self.expected, "")

    def _check(self, actual: Any, expected: Any, where: str) -> None:
        if isinstance(expected, dict):
            assert set(actual) == set(expected), f"{self.id}{where}: keys {set(actual)} instead of {set(expected)}"
            for key, value in expected.items():
                self._check(actual[key], value, f"{where}.{key}")
        elif isinstance(expected, list):
            assert len(actual) == len(expected), f"{self.id}{where}: {len(actual)} values instead of {len(expected)}"
            for index, value in enumerate(expected):
                self._check(actual[index], value, f"{where}[{index}]")
        else:
            rel_tol, abs_tol = self.tolerance.get("rel", 0.0), self.tolerance.get("abs", 0.0)
            same = actual == expected or isclose(actual, expected, rel_tol=rel_tol, abs_tol=abs_tol)
            assert same, f"{self.id}{where}: {actual} instead of {expected} {self.unit} ({self.source})"


def load_cases() -> dict[str, Case]:
    return {entry["id"]: Case(**entry) for entry in json.loads(CASES_FILE.read_text("utf8"))}


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    return load_cases()


@pytest.fixture(scope="session")
def published(cases: dict[str, Case]) -> Callable[[str], Case]:
    return cases.__getitem__
