"""Exercises: right, wrong and unanswered, and hints that do not give the answer away."""

from typing import Any

import pytest

from hwlessons import show
from hwlessons.show.exercises import EXERCISE_MIME


@pytest.mark.parametrize(
    ("answer", "expected", "options"),
    [
        (16, 16, {}),
        (16.0, 16, {}),
        (8.94, 8.940696716, {"rel_tol": 0.001}),
        (0.1 + 0.2, 0.3, {}),
        ("Backward ", "backward", {}),
        (False, False, {}),
        ([1, 2.0], (1, 2), {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a", "b"}, {"b", "a"}, {}),
        (["a", "b"], {"b", "a"}, {}),
        (lambda x: x * 2, lambda f: f(3) == 6, {}),
    ],
)
def test_right_answers(answer: Any, expected: Any, options: dict[str, Any]) -> None:
    assert show.check("q", answer, expected, **options).verdict == "right"


@pytest.mark.parametrize("answer", [..., [1, ...], {"a": ...}, ([...],)])
def test_a_stub_is_not_answered_yet_and_the_lesson_goes_on(answer: Any) -> None:
    shown = show.check("q", answer, 16)
    assert shown.verdict == "unanswered"
    assert "not answered yet" in shown.text


@pytest.mark.parametrize(
    ("answer", "expected", "options", "remark"),
    [
        (17, 16, {}, "Too large."),
        (3, 16, {}, "Too small."),
        (-16, 16, {}, "The sign is wrong."),
        (32, 16, {}, "Too large by a factor of 2: something is counted too often."),
        (4, 16, {}, "Too small by a factor of 4: something is counted too rarely."),
        (15.9, 16, {}, "Very close: do not round"),
        (9.6, 9.6e9 / 2**30, {"unit": "GiB", "rel_tol": 0.01}, "powers of 1,000 and of 1,024"),
        (9.6e9, 9.6, {"unit": "GB"}, "Far too large, by a power of 1,000 or 1,024: GB is asked for."),
        (78, 0.78, {}, "a fraction (0 to 1) or per cent?"),
        (128, 16, {"unit": "B"}, "bits or bytes?"),
        ("16", 16, {"unit": "B"}, "A str was given, a number in B is asked for."),
        (True, 1, {}, "A bool was given"),
        (float("nan"), 1, {}, "not finite"),
        (0, 1, {}, "Too small."),
        (1, 0, {}, "Too large."),
        ("forward", "backward", {}, "Not this one."),
        (1, True, {}, "True or False is asked for"),
        ([1, 3], [1, 2], {}, "Entry 2: too large."),
        ([1], [1, 2], {}, "1 entries were given, 2 are asked for"),
        (5, [1, 2], {}, "a list of 2 is asked for"),
        ({"a": 1}, {"b": 1}, {}, "The keys are to be b"),
        ({"a": 2}, {"a": 5}, {}, "A: too small."),
        ({"a"}, {"a", "b"}, {}, "1 missing."),
        ({"a", "c"}, {"a"}, {}, "1 too many."),
        (lambda x: x, lambda f: f(3) == 6, {}, "Not right yet."),
        (None, lambda f: f(3) == 6, {}, "Trying it raised TypeError"),
        (3, lambda n: True if n > 5 else "it is to be above five", {}, "It is to be above five."),
        (17, 16, {"hint": "count the master weights"}, "Too large. Hint: count the master weights"),
    ],
)
def test_wrong_answers_are_told_what_is_wrong(answer: Any, expected: Any, options: dict[str, Any], remark: str) -> None:
    shown = show.check("q", answer, expected, **options)
    assert shown.verdict == "wrong"
    assert remark in shown.text
    assert shown._records() == {EXERCISE_MIME: {"name": "q", "verdict": "wrong"}}


def test_the_answer_is_not_given_away() -> None:
    shown = show.check("q", 5, 123456, unit="B")
    assert not any("123" in part for part in (shown.text, shown.html, str(shown._records())))


def test_an_expected_number_that_is_none_is_the_authors_mistake() -> None:
    with pytest.raises(ValueError, match="expected"):
        show.check("q", 5, float("nan"))
