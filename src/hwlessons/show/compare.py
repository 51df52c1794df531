"""What is wrong with an answer, in words that do not give the right one away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from numbers import Real
from typing import Any

from hwlessons.show.numbers import Number, plain_number
from hwlessons.units import UNITS

_POWERS = {1000: "a factor of 1,000", 1024: "a factor of 1,024"}
_SIZES = {n: (1024 / 1000) ** n for n in (1, 2, 3, 4)}


def what_is_wrong(answer: Any, expected: Any, unit: str = "", rel_tol: float | None = None) -> str | None:
    """A sentence about a wrong answer; None for a right one. Numbers are compared within `rel_tol`."""
    if isinstance(expected, (bool, str)) or expected is None:
        return _of_word(answer, expected)
    if isinstance(expected, Mapping):
        return _of_mapping(answer, expected, unit, rel_tol)
    if isinstance(expected, Set):
        return _of_set(answer, expected)
    if isinstance(expected, Sequence):
        return _of_sequence(answer, expected, unit, rel_tol)
    return _of_number(answer, plain_number(expected, "expected"), unit, rel_tol)


def _of_word(answer: Any, expected: Any) -> str | None:
    if type(answer) is not type(expected):
        wanted = {bool: "True or False", str: "text in quotes"}.get(type(expected), "None")
        return f"a {type(answer).__name__} was given, {wanted} is asked for"
    same = answer.strip().lower() == expected.strip().lower() if isinstance(expected, str) else answer == expected
    return None if same else "not this one"


def _of_number(answer: Any, expected: Number, unit: str, rel_tol: float | None) -> str | None:
    if isinstance(answer, bool) or not isinstance(answer, Real):
        return f"a {type(answer).__name__} was given, a number{f' in {unit}' if unit else ''} is asked for"
    try:
        given = plain_number(answer, "the answer")
    except ValueError as error:
        return str(error)
    tolerance = rel_tol if rel_tol is not None else 0.0 if isinstance(expected, int) else 1e-9
    if abs(given - expected) <= tolerance * abs(expected):
        return None
    if expected and given:
        if (given < 0) != (expected < 0):
            return "the sign is wrong"
        special = _familiar_factor(abs(given / expected), unit)
        if special:
            return special
        if abs(given / expected - 1) < 0.02:
            return "very close: do not round on the way, and look for a small term that is missing or too much"
    return "too large" if given > expected else "too small"


def _familiar_factor(ratio: float, unit: str) -> str | None:
    """What people usually did who are off by just this factor."""

    def is_off_by(factor: float) -> bool:
        return any(abs(ratio / f - 1) < 1e-3 for f in (factor, 1 / factor))

    side = "large" if ratio > 1 else "small"
    quantity = UNITS[unit].quantity if unit in UNITS else ""
    if quantity.startswith("bytes") and any(map(is_off_by, _SIZES.values())):
        return f"close, but powers of 1,000 and of 1,024 seem to be mixed up; {unit} is asked for"
    for power in (1, 2, 3, 4):
        if any(is_off_by(base**power) for base in _POWERS):
            return (
                f"far too {side}, by a power of 1,000 or 1,024: {f'{unit} is asked for' if unit else 'check the unit'}"
            )
    if is_off_by(100):
        return f"too {side} by a factor of 100: a fraction (0 to 1) or per cent?"
    if quantity.startswith(("bytes", "bits")) and is_off_by(8):
        return f"too {side} by a factor of 8: bits or bytes?"
    for factor in (2, 3, 4):
        if is_off_by(factor):
            return (
                f"too {side} by a factor of {factor}: something is counted {'too often' if ratio > 1 else 'too rarely'}"
            )
    return None


def _of_sequence(answer: Any, expected: Sequence[Any], unit: str, rel_tol: float | None) -> str | None:
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        return f"a {type(answer).__name__} was given, a list of {len(expected)} is asked for"
    if len(answer) != len(expected):
        return f"{len(answer)} entries were given, {len(expected)} are asked for"
    wrong = [
        f"entry {number}: {problem}"
        for number, (given, right) in enumerate(zip(answer, expected, strict=True), start=1)
        if (problem := what_is_wrong(given, right, unit, rel_tol))
    ]
    return "; ".join(wrong) or None


def _of_mapping(answer: Any, expected: Mapping[Any, Any], unit: str, rel_tol: float | None) -> str | None:
    if not isinstance(answer, Mapping):
        return f"a {type(answer).__name__} was given, a dict with {', '.join(map(str, expected))} is asked for"
    if set(answer) != set(expected):
        return f"the keys are to be {', '.join(map(str, expected))}"
    wrong = [
        f"{key}: {problem}"
        for key, right in expected.items()
        if (problem := what_is_wrong(answer[key], right, unit, rel_tol))
    ]
    return "; ".join(wrong) or None


def _of_set(answer: Any, expected: Set[Any]) -> str | None:
    try:
        given = set(answer)
    except TypeError:
        return f"a {type(answer).__name__} was given, a set is asked for"
    missing, extra = len(expected - given), len(given - expected)
    parts = [f"{missing} missing" if missing else "", f"{extra} too many" if extra else ""]
    return ", ".join(filter(None, parts)) or None
