"""A registered machine for what needs one, forgotten after each test."""

from collections.abc import Iterator
from typing import Any

import pytest

from hwlessons import show
from hwlessons.show.machine import forget_machine

MACHINE = {
    "device": "cpu", "device_name": "Test CPU", "kernels": "cpu", "torch": "2.13.0+cpu", "python": "3.11.7",
    "platform": "Linux x86_64", "num_threads": 2, "total_memory_bytes": 8 * 2**30, "dtypes": ["fp32", "bf16"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh_kernel() -> Iterator[None]:
    forget_machine()
    yield
    forget_machine()


@pytest.fixture
def machine() -> dict[str, Any]:
    show.machine(MACHINE)
    return dict(MACHINE)
