from __future__ import annotations

from typing import Any

import pytest

from hwlessons.publish import execute, solutions
from hwlessons.publish.paths import Project


def test_the_solution_replaces_the_stub_and_nothing_else(sample: dict[str, Any]) -> None:
    solved = solutions.with_solutions(sample)
    changed = [n for n, (a, b) in enumerate(zip(sample["cells"], solved["cells"], strict=True)) if a != b]
    assert changed == [6]
    assert solved["cells"][6]["source"] == "my_bytes = 4 * 2 * 8"


def test_each_wrong_answer_is_tried_from_the_solution(sample: dict[str, Any]) -> None:
    tried = solutions.with_wrong_answers(solutions.with_solutions(sample))
    wrong = [cell["source"] for cell in tried["cells"] if "wrong-answer" in cell["metadata"]["tags"]]
    check = 'show.check("bytes", my_bytes, 64, unit="B")'
    assert wrong == [f"my_bytes = 4 * 2 * 8\nmy_bytes = ({answer})\n{check}" for answer in ("16", "my_bytes / 4")]
    assert tried["cells"][10]["source"] == "my_bytes = 4 * 2 * 8", "and the right answer is put back"
    assert len({cell["id"] for cell in tried["cells"]}) == len(tried["cells"])


@pytest.mark.parametrize("tag", ["check", "solution"])
def test_an_exercise_without_its_parts_is_refused(sample: dict[str, Any], tag: str) -> None:
    for cell in sample["cells"]:
        cell["metadata"]["tags"] = [t for t in cell["metadata"]["tags"] if t != tag]
    with pytest.raises(ValueError, match=f"cell 7: no cell tagged '{tag}'"):
        solutions.with_solutions(sample)


def test_a_solution_without_code_is_refused(sample: dict[str, Any]) -> None:
    sample["cells"][8]["source"] = "<details>64</details>"
    with pytest.raises(ValueError, match="cell 9 holds no"):
        solutions.with_solutions(sample)


def test_a_stub_must_assign_first(sample: dict[str, Any]) -> None:
    sample["cells"][6]["source"] = "print(1)"
    with pytest.raises(ValueError, match="cell 7 must begin with an assignment"):
        solutions.exercises(sample)


def _problems(sample: dict[str, Any], book: Project) -> list[str]:
    second = solutions.with_wrong_answers(solutions.with_solutions(sample))
    return solutions.exercise_problems(execute.run_notebook(second, "sample", book.notebooks).notebook)


def test_the_sample_has_no_problem(sample: dict[str, Any], book: Project) -> None:
    assert _problems(sample, book) == []


def test_a_wrong_solution_and_a_check_that_is_too_kind_are_found(sample: dict[str, Any], book: Project) -> None:
    sample["cells"][6]["metadata"]["wrong_answers"] = ["64"]
    sample["cells"][8]["source"] = sample["cells"][8]["source"].replace("4 * 2", "3 * 2")
    found = _problems(sample, book)
    assert [text.split(",")[0] for text in found] == ["cell 8 should be called right", "cell 9 should be called wrong"]


def test_a_check_that_says_nothing_is_found(sample: dict[str, Any], book: Project) -> None:
    sample["cells"][7]["source"] = "None"
    assert len(_problems(sample, book)) == 3
