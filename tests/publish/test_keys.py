from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hwlessons.publish import keys
from hwlessons.publish.paths import Project

Change = Callable[[dict[str, Any], Project, pytest.MonkeyPatch], object]


def _prose(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    nb["cells"][0]["source"] += " More."


def _outputs(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    nb["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]


def _code(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    nb["cells"][1]["source"] += "\n1"


def _tags(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    nb["cells"][1]["metadata"]["tags"] = ["raises-exception"]


def _pins(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    (book.root / "requirements.txt").write_text("torch==2.14.0")


def _device(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("HWLESSONS_DEVICE", "cuda")


def _torch(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "torch_version", lambda: "2.9.0")


def _package(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "package_hash", lambda code: "other")


def _record(nb: dict[str, Any], book: Project, patch: pytest.MonkeyPatch) -> None:
    book.recorded_runs.mkdir(exist_ok=True)
    (book.recorded_runs / "x.json").write_text("{}")


@pytest.mark.parametrize("change", [_prose, _outputs, _record])
def test_what_a_run_does_not_depend_on_keeps_the_key(
    sample: dict[str, Any], book: Project, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    before = keys.lesson_key(sample, book)
    change(sample, book, monkeypatch)
    assert keys.lesson_key(sample, book) == before


@pytest.mark.parametrize("change", [_code, _tags, _pins, _device, _torch, _package])
def test_what_a_run_depends_on_changes_the_key(
    sample: dict[str, Any], book: Project, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    before = keys.lesson_key(sample, book)
    change(sample, book, monkeypatch)
    assert keys.lesson_key(sample, book) != before


def test_a_lesson_that_shows_recorded_runs_depends_on_them(
    sample: dict[str, Any], book: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample["cells"][1]["source"] += "\nshow.recorded()"
    before = keys.lesson_key(sample, book)
    _record(sample, book, monkeypatch)
    assert keys.lesson_key(sample, book) != before
