"""A small site is really built here; what the real book's pages look like is tested in tests/site."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hwlessons.publish import run, site, store
from hwlessons.publish.paths import Project, PublishError
from hwlessons.show.machine import MACHINE_MIME

LESSON = "notebooks/01_sample.html"
Edit = Callable[[Path, str, str], None]


@pytest.fixture(scope="module")
def built(module_book: Project) -> Project:
    """The sample book, built once."""
    site.build_book(module_book, say=lambda text: None)
    return module_book


@pytest.fixture
def said(built: Project) -> Iterator[list[str]]:
    """Collects what a build says; puts the book's files back afterwards."""
    pages = {path: path.read_bytes() for folder in ("book", "notebooks") for path in (built.root / folder).glob("*.*")}
    yield []
    for path, content in pages.items():
        if path.read_bytes() != content:
            path.write_bytes(content)


def _page(book: Project, name: str) -> str:
    return (book.html / name).read_text("utf-8")


def test_a_site_comes_out(built: Project) -> None:
    assert (built.html / "index.html").is_file()
    assert "bytes of the tensor" in _page(built, LESSON)


def test_records_for_machines_are_not_drawn(built: Project) -> None:
    assert "vnd.hwlessons" not in _page(built, LESSON)


def test_the_evidence_page_lists_every_claim(built: Project) -> None:
    text = _page(built, "book/evidence.html")
    for part in (
        "bytes of the tensor",
        "saved bytes",
        "not applicable here",
        "Sample CPU",
        "../notebooks/01_sample.html",
    ):
        assert part in text, part


def test_an_unchanged_book_is_not_built_again(built: Project, said: list[str]) -> None:
    before = (built.html / LESSON).stat().st_mtime_ns
    start = time.perf_counter()
    site.build_book(built, say=said.append)
    assert time.perf_counter() - start < 1
    assert said[0].startswith("the book is up to date") and len(said) == 1
    assert (built.html / LESSON).stat().st_mtime_ns == before


@pytest.mark.parametrize(("part", "page"), [("text/html", LESSON), (MACHINE_MIME, "book/evidence.html")])
def test_new_outputs_of_an_unchanged_notebook_are_read_again(
    built: Project, said: list[str], part: str, page: str
) -> None:
    (record,) = run.run_lessons(built, built.lessons(), say=lambda text: None)
    notebook = store.read_notebook(store.executed_path(built, "01_sample"))
    for data in (output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", [])):
        if part in data:
            data[part] = json.loads(json.dumps(data[part]).replace("Sample CPU", f"Another CPU, {page}"))
    store.save(built, notebook, record)
    site.build_book(built, say=said.append)
    assert f"Another CPU, {page}" in _page(built, page)
    assert "01_sample" not in "".join(said), "nothing was run"


def test_mended_prose_shows_without_a_run(built: Project, said: list[str], edit: Edit) -> None:
    edit(built.lessons()[0], "How large is a small tensor?", "How big is a small tensor?")
    site.build_book(built, say=said.append)
    assert "How big is a small tensor?" in _page(built, LESSON)
    assert [text.split(" …")[0].split(":")[0] for text in said] == ["building the pages", "the book is built"]


def test_a_warning_ends_the_build_and_the_next_build_tries_again(built: Project, said: list[str]) -> None:
    page = built.root / "book" / "gpu.md"
    page.write_text(page.read_text("utf-8") + "\n[nowhere](missing.md)\n", "utf-8")
    for _ in range(2):
        with pytest.raises(site.SiteFailed, match=r"gpu\.md:\d+: WARNING: .*missing\.md"):
            site.build_book(built, say=said.append)


def test_sphinx_alone_refuses_a_lesson_that_has_not_run(built: Project, said: list[str], edit: Edit) -> None:
    (record,) = run.run_lessons(built, built.lessons(), say=lambda text: None)
    edit(built.lessons()[0], "measured=60", "measured=30 * 2")
    with pytest.raises(site.SiteFailed, match="lesson 01_sample has not been run on its present cells"):
        site.build_site(built, [record], say=said.append)


def test_a_book_without_lessons_says_so(book: Project) -> None:
    book.lessons()[0].unlink()
    with pytest.raises(PublishError, match="no lessons found"):
        site.build_book(book)
