"""What all tests share: where the checkout is."""

from __future__ import annotations

import os
from pathlib import Path

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
