"""Claims: a predicted number beside the one found, and a run that stops where they disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

from hwlessons.show.applies import reason_not_here
from hwlessons.show.claim_rows import claim_row, tolerance_in_words
from hwlessons.show.machine import provenance
from hwlessons.show.numbers import Number, difference, float_ratio, plain_number, write_quantity, write_ratio
from hwlessons.show.output import Shown
from hwlessons.units import is_time_or_rate

CLAIM_MIME = "application/vnd.hwlessons.claim+json"

Relation = Literal["equal", "at_most", "at_least"]
Verdict = Literal["holds", "broken", "not applicable here"]


class ClaimError(AssertionError):
    """A predicted and a found number disagree. In a notebook it shows one line instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"ClaimError: {self}"]


@dataclass(eq=False)
class Claim(Shown):
    """A claim and its verdict.

    Attributes:
        record: what the executed notebook keeps of it: name, predicted, measured, ratio, unit, kind, relation, rel_tol,
            abs_tol, verdict, reason, kernels, dtypes, torch_range.
    """

    record: dict[str, Any] = field(kw_only=True)

    @property
    def holds(self) -> bool:
        """Whether the numbers agree; False also where the claim does not apply."""
        return bool(self.record["verdict"] == "holds")

    def _records(self) -> Mapping[str, Any]:
        return {CLAIM_MIME: self.record}


def claim(
    name: str,
    *,
    predicted: Number,
    measured: Number,
    unit: str,
    kind: str,
    rel_tol: float = 0.0,
    abs_tol: float = 0.0,
    relation: Relation = "equal",
    kernels: Literal["cpu", "cuda"] | None = None,
    dtypes: Sequence[str] = (),
    torch: str | None = None,
    causes: Sequence[str] = (),
) -> Claim:
    """Shows a predicted number beside the one found, and stops the lesson if they disagree.

    Two ints are compared exactly. The allowed difference is the larger of `rel_tol * |predicted|` and `abs_tol`, for
    "equal" on both sides, for "at_most" (measured <= predicted) and "at_least" on the side that it bounds.

    Args:
        name: what is claimed, in a few words; with the lesson it identifies the claim in the book's evidence.
        predicted: the formula's number.
        measured: the number found, by whatever `kind` says.
        unit: the unit of both, "" for a ratio or a plain count.
        kind: "computed", "traced", "simulated", "measured" or "recorded".
        rel_tol: allowed difference as a fraction of the predicted number, such as a stated rounding bound.
        abs_tol: allowed difference in `unit`.
        relation: "equal", "at_most" or "at_least".
        kernels: the kernels for which the claim is made; None if they make no difference.
        dtypes: dtypes that must have fast kernels here.
        torch: versions for which the claim is made, as in ">=2.9,<2.15".
        causes: what to look at first when it breaks.

    Raises:
        ClaimError: after showing it, where it is broken.
        ValueError: if a number is no finite number, or an argument is not one of those allowed; also for "equal"
            on a measured time or rate, which no formula predicts: claim an ordering or a bound.
    """
    _check_arguments(name, unit, kind, relation, rel_tol, abs_tol)
    predicted = plain_number(predicted, f"predicted of claim {name!r}")
    measured = plain_number(measured, f"measured of claim {name!r}")
    reason = reason_not_here(kernels, dtypes, torch)
    verdict: Verdict = "holds" if _agree(predicted, measured, relation, rel_tol, abs_tol) else "broken"
    record = {
        "name": name,
        "predicted": predicted,
        "measured": measured,
        "ratio": float_ratio(measured, predicted),
        "unit": unit,
        "kind": kind,
        "relation": relation,
        "rel_tol": rel_tol,
        "abs_tol": abs_tol,
        "verdict": "not applicable here" if reason else verdict,
        "reason": reason,
        "kernels": kernels,
        "dtypes": list(dtypes),
        "torch_range": torch,
    }
    html, text = claim_row(record, provenance(kind))
    shown = Claim(html, text, record=record)._emit()
    if record["verdict"] == "broken":
        raise ClaimError(_what_broke(record, causes))
    return shown


def _agree(predicted: Number, measured: Number, relation: Relation, rel_tol: float, abs_tol: float) -> bool:
    allowed = max(Fraction(rel_tol) * abs(Fraction(predicted)), Fraction(abs_tol))
    excess = difference(measured, predicted)
    too_much, too_little = excess > allowed, -excess > allowed
    return not {"equal": too_much or too_little, "at_most": too_much, "at_least": too_little}[relation]


def _check_arguments(name: str, unit: str, kind: str, relation: str, rel_tol: float, abs_tol: float) -> None:
    if not isinstance(name, str) or not name.strip() or len(name.splitlines()) > 1 or len(name) > 100:
        raise ValueError(f"the claim's name {name!r} must be one line of 1 to 100 characters")
    if relation not in get_args(Relation):
        raise ValueError(f"relation={relation!r} is unknown; it is one of {', '.join(get_args(Relation))}")
    for what, tolerance in (("rel_tol", rel_tol), ("abs_tol", abs_tol)):
        if plain_number(tolerance, what) < 0:
            raise ValueError(f"{what}={tolerance} must not be negative")
    if kind == "measured" and relation == "equal" and is_time_or_rate(unit):
        raise ValueError(
            f"claim {name!r} predicts a measured time or rate ({unit}); claim an ordering or a bound that physics "
            'gives, with relation="at_most" or "at_least"'
        )


def _what_broke(record: Mapping[str, Any], causes: Sequence[str]) -> str:
    values = ", ".join(f"{key} {write_quantity(record[key], record['unit'])}" for key in ("predicted", "measured"))
    ratio = write_ratio(record["measured"], record["predicted"])
    likely = f"; likely causes: {'; '.join(causes)}" if causes else ""
    return f"{record['name']!r} is broken: {values}, ratio {ratio}, tolerance {tolerance_in_words(record)}{likely}"
