"""Every lesson of the book: its file, its run, its claims, its exercises, its numbers in prose."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from lesson_checks import template
from lesson_checks.all_checks import FILE_CHECKS, RUN_CHECKS, Check
from lesson_checks.toc import contents

from hwlessons.publish import store
from hwlessons.publish.execute import LessonFailed
from hwlessons.publish.paths import Project
from hwlessons.publish.run import run_lessons
from hwlessons.publish.solutions import exercise_problems

PROJECT = Project.find(Path(__file__).parent)
LESSONS = PROJECT.lessons()
MOST_MEMORY_BYTES = 2 * 10**9
lessons = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


_failed: dict[tuple[Path, bool], LessonFailed] = {}


def ran(lesson: Path, *, solutions: bool = False) -> Any:
    """The executed lesson, with its present prose; it runs only if it must, and fails only once."""
    if (lesson, solutions) in _failed:
        pytest.fail(f"it did not run through: {str(_failed[lesson, solutions]).splitlines()[0]}")
    try:
        run_lessons(PROJECT, [lesson], solutions=solutions, say=lambda line: None)
    except LessonFailed as error:
        _failed[lesson, solutions] = error
        raise
    variant = store.SOLUTIONS if solutions else store.PLAIN
    notebook = store.read_notebook(store.executed_path(PROJECT, lesson.stem, variant))
    return notebook if solutions else store.with_outputs(store.read_notebook(lesson), notebook)


def test_there_are_lessons() -> None:
    assert LESSONS


@lessons
@pytest.mark.parametrize("check", FILE_CHECKS, ids=lambda check: check.__name__)
def test_file(lesson: Path, check: Check) -> None:
    assert check(store.read_notebook(lesson)) == []


@lessons
def test_format(lesson: Path) -> None:
    nbformat.validate(nbformat.read(lesson, as_version=nbformat.NO_CONVERT))


def test_setups_are_the_same() -> None:
    assert template.different_setups({path.stem: store.read_notebook(path) for path in LESSONS}) == []


def test_table_of_contents() -> None:
    toc = yaml.safe_load((PROJECT.root / "book" / "_toc.yml").read_text("utf-8"))
    assert contents(toc, PROJECT.root) == []


@lessons
@pytest.mark.parametrize("check", RUN_CHECKS, ids=lambda check: check.__name__)
def test_run(lesson: Path, check: Check) -> None:
    assert check(ran(lesson)) == []


@lessons
def test_run_is_small(lesson: Path) -> None:
    ran(lesson)
    record = store.load_record(PROJECT, lesson.stem)
    assert record is not None
    assert record.peak_memory_bytes <= MOST_MEMORY_BYTES


@lessons
def test_solutions_pass_and_wrong_answers_are_refused(lesson: Path) -> None:
    assert exercise_problems(ran(lesson, solutions=True)) == []
