"""Exercises: a reader's answer is judged, and told what is wrong with it, without being told the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from hwlessons.show.compare import what_is_wrong
from hwlessons.show.html import element, verdict_box
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
    return _judged(name, "wrong", " ".join(filter(None, [_sentence(problem), f"Hint: {hint}" if hint else ""])))


def _has_stub(answer: Any) -> bool:
    if isinstance(answer, dict):
        return any(map(_has_stub, answer.values()))
    return answer is ... or (isinstance(answer, (list, tuple)) and any(map(_has_stub, answer)))


def _judged(name: str, verdict: Verdict, remark: str) -> Check:
    marked = _MARKS[verdict]
    html = verdict_box(
        f"{escape(name)} · {element('strong', escape(marked))}",
        element("div", escape(remark)) if remark else "",
        colour=_COLOURS[verdict],
        class_="hwl-check",
        label=f"Exercise: {name}",
    )
    text = f"{name} · {marked}: {remark}" if remark else f"{name} · {marked}"
    return Check(html, text, name=name, verdict=verdict)._emit()


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
