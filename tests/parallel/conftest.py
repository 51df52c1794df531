"""Marks every process that these tests start, and fails where one of them is still alive at the end."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator

import pytest

from hwlessons.parallel.orphans import marked

VARIABLE = "HWLESSONS_TEST_SESSION"


def wait_until_gone(value: str, variable: str = VARIABLE, seconds: float = 30.0) -> list[str]:
    """The command lines of what is still alive after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := marked(value, variable)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [" ".join(process.cmdline()) for process in left]


@pytest.fixture(scope="session", autouse=True)
def session() -> Iterator[str]:
    """The mark of this session's processes; none of them may outlive it."""
    value = uuid.uuid4().hex
    os.environ[VARIABLE] = value
    yield value
    del os.environ[VARIABLE]
    assert wait_until_gone(value) == []
