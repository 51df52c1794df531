from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hwlessons.publish import execute, run, store
from hwlessons.publish.paths import Project, PublishError

Edit = Callable[[Path, str, str], None]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the notebooks that are really run."""
    names: list[str] = []
    real = execute.run_notebook

    def counted(notebook: object, name: str, *rest: object) -> execute.Run:
        names.append(name)
        return real(notebook, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(execute, "run_notebook", counted)
    return names


def _run(book: Project, **options: bool) -> list[store.RunRecord]:
    return run.run_lessons(book, book.lessons(), say=lambda text: None, **options)


def test_a_lesson_runs_once_on_the_same_inputs(book: Project, runs: list[str], edit: Edit) -> None:
    first = _run(book)
    assert _run(book) == first
    edit(book.lessons()[0], "A sample lesson", "A better title")
    assert _run(book) == first
    assert runs == ["01_sample"]
    edit(book.lessons()[0], "4 * 3 * 5", "4 * 5 * 3")
    assert _run(book) != first
    assert runs == ["01_sample"] * 2


def test_the_second_run_is_kept_beside_the_first(book: Project, runs: list[str]) -> None:
    for _ in range(2):
        _run(book)
        _run(book, solutions=True)
    assert runs == ["01_sample", "01_sample.solutions"]


def test_force_runs_it_again(book: Project, runs: list[str]) -> None:
    _run(book)
    _run(book, force=True)
    assert len(runs) == 2


@pytest.mark.parametrize("damage", ["", "{}", "[", '{"key": 1}'])
def test_a_damaged_record_is_no_record(book: Project, damage: str) -> None:
    _run(book)
    store.executed_path(book, "01_sample").with_suffix(".json").write_text(damage)
    assert store.load_record(book, "01_sample") is None


def test_a_failing_lesson_keeps_the_ones_before(book: Project, notebook: Callable[..., object]) -> None:
    (book.notebooks / "02_broken.ipynb").write_text(json.dumps(notebook("1 / 0")))
    with pytest.raises(execute.LessonFailed, match="lesson 02_broken failed in cell 1"):
        _run(book)
    assert store.load_record(book, "01_sample") is not None
    assert store.load_record(book, "02_broken") is None


def test_present_prose_takes_the_outputs_of_the_same_code(book: Project, edit: Edit) -> None:
    _run(book)
    path = book.lessons()[0]
    executed = store.read_notebook(store.executed_path(book, "01_sample"))
    edit(path, "A sample lesson", "A better title")
    merged = store.with_outputs(store.read_notebook(path), executed)
    assert merged is not None
    assert "A better title" in merged["cells"][0]["source"]
    assert merged["cells"][3]["outputs"] == executed["cells"][3]["outputs"] != []
    edit(path, "measured=60", "measured=4 * 15")
    assert store.with_outputs(store.read_notebook(path), executed) is None


def test_the_table_names_each_lesson_and_the_sum(book: Project) -> None:
    said: list[str] = []
    run.run_lessons(book, book.lessons(), say=said.append)
    lines = said[0].splitlines()
    assert lines[0].split() == ["lesson", "seconds", "peak", "memory"]
    assert lines[1].split()[0] == "01_sample" and lines[1].endswith("MiB")
    assert lines[2].split()[0] == "all"
    assert run.run_lessons(book, book.lessons(), say=said.append) and len(said) == 1, "nothing ran, nothing to say"


def test_lessons_are_named_by_number_name_or_path(book: Project) -> None:
    lessons = book.lessons()
    for name in ("1", "01", "01_sample", "notebooks/01_sample.ipynb"):
        assert book.select([name]) == lessons
    shutil.copy(lessons[0], book.notebooks / "01_second.ipynb")
    shutil.copy(lessons[0], book.notebooks / "10_other.ipynb")
    assert [path.stem for path in book.select(["1"])] == ["01_sample", "01_second"]
    with pytest.raises(PublishError, match="no lesson '7'; there are 01_sample, 01_second, 10_other"):
        book.select(["7"])


def test_an_equal_file_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    store.write_text(path, "x\n")
    before = path.stat().st_mtime_ns
    store.write_text(path, "x\n")
    assert path.stat().st_mtime_ns == before
    store.write_text(path, "y\n")
    assert path.read_text() == "y\n" and list(tmp_path.iterdir()) == [path]


def test_what_is_no_notebook_is_named(tmp_path: Path) -> None:
    path = tmp_path / "01_bad.ipynb"
    for text in ("{", "[]", '{"cells": [], "nbformat": 3}'):
        path.write_text(text)
        with pytest.raises(PublishError, match=r"01_bad\.ipynb is no notebook"):
            store.read_notebook(path)
