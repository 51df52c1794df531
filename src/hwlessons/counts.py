"""The one check that nearly every function makes: whether a number of things is one."""

from __future__ import annotations


def check_count(name: str, value: object) -> None:
    """Raise ValueError, with the name and the value, unless `value` is an integer of at least 1; True is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
