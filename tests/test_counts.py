"""A count is an integer of at least 1, and anything else is refused with its name and value."""

from __future__ import annotations

import pytest

from hwlessons.counts import check_count


@pytest.mark.parametrize("value", [1, 2, 10**20])
def test_a_count(value: int) -> None:
    check_count("rank", value)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None])
def test_no_count(value: object) -> None:
    with pytest.raises(ValueError, match=f"^rank must be an integer of at least 1, got {value!r}$"):
        check_count("rank", value)
