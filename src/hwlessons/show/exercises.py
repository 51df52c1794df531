"""Exercises: a reader's answer is judged, and told what is wrong with it, without being told the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from hwlessons.show.compare import what_is_wrong
from hwlessons.show.html import BORDER, element
from hwlessons.show.output import Shown

EXERCISE_MIME = "application/vnd.hwlessons.exercise+json"

Verdict = Literal["right", "wrong", "unanswered"]
_MARKS = {"right": "✓ right", "wrong": "✗ not yet", "unanswered": "… not answered yet"}
_COLOURS = {"right": "#009E73", "wrong": "#D55E00", "unanswered": "#7F7F7F"}


@dataclass(eq=False)
class Check(Shown):
    """A judged answer.

    Attributes:
        name: the exercise.
        verdict: "right", "wrong" or "unanswered".
    """

    name: str = field(kw_only=True)
    verdict: Verdict = field(kw_only=True)

    def _records(self) -> Mapping[str, Any]:
        return {EXERCISE_MIME: {"name": self.name, "verdict": self.verdict}}


def check(
    name: str,
    answer: Any,
    expected: Any | Callable[[Any], bool | str],
    *,
    unit: str = "",
    rel_tol: float | None = None,
    hint: str = "",
) -> Check:
    """Judges an answer; `...` is not answered yet. Never raises because of a wrong answer.

    Args:
        name: the exercise, in a few words.
        answer: the reader's answer.
        expected: the right answer (a number, text, truth value, or a list, tuple, set or dict of these), or a function
            that is given the answer and returns True, or else False or a sentence that says what is wrong.
        unit: the unit that a number is asked for in; it makes hints about GB and GiB, bits and bytes possible.
        rel_tol: allowed difference as a fraction of the expected number; by default 0 for an int, 1e-9 for a float.
        hint: shown with a wrong answer, after what the check itself can tell.
    """
    if _has_stub(answer):
        return _judged(name, "unanswered", "")
    if callable(expected):
        try:
            said = expected(answer)
        except Exception as error:
            said = f"trying it raised {type(error).__name__}: {error}"
        problem = None if said is True else said if isinstance(said, str) else "not right yet"
    else:
        problem = what_is_wrong(answer, expected, unit, rel_tol)
    if problem is None:
        return _judged(name, "right", "")
    return _judged(name, "wrong", ". ".join(part.rstrip(".") for part in (problem, hint) if part))


def _has_stub(answer: Any) -> bool:
    if isinstance(answer, dict):
        return any(map(_has_stub, answer.values()))
    return answer is ... or (isinstance(answer, (list, tuple)) and any(map(_has_stub, answer)))


def _judged(name: str, verdict: Verdict, remark: str) -> Check:
    ending = f"{_MARKS[verdict]}: {remark}" if remark else _MARKS[verdict]
    html = element(
        "div",
        f"{escape(name)} · {element('strong', escape(_MARKS[verdict]))}" + (f": {escape(remark)}" if remark else ""),
        class_="hwl-check",
        role="group",
        aria_label=f"Exercise: {name}",
        style=f"{BORDER} {_COLOURS[verdict]};padding:0.2em 0 0.2em 0.8em;margin:0.4em 0",
    )
    return Check(html, f"{name}: {ending}", name=name, verdict=verdict)._emit()
