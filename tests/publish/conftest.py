"""A small book with one lesson, to run and build in a temporary folder whose path has a space."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwlessons.publish.paths import Project

SAMPLE = Path(__file__).parent / "data" / "01_sample.ipynb"
TOC = """format: jb-book
root: book/index
chapters:
  - file: book/how_to_read
  - file: book/gpu
  - file: notebooks/01_sample
  - file: book/evidence
  - file: book/glossary
"""


def make_book(root: Path, project: Project) -> Project:
    """Lays out the sample book below `root`, with this book's settings and pages."""
    shutil.copytree(project.root / "book", root / "book", ignore=shutil.ignore_patterns("evidence", "images"))
    (root / "book" / "_toc.yml").write_text(TOC, "utf-8")
    (root / "book" / "index.md").write_text("# A small book\n\nOne lesson and the pages about reading.\n", "utf-8")
    shutil.copy(project.root / "_config.yml", root)
    favicon = Path("src/hwlessons/publish/static/favicon.svg")
    (root / favicon).parent.mkdir(parents=True)
    shutil.copy(project.root / favicon, root / favicon)
    (root / "notebooks").mkdir()
    shutil.copy(SAMPLE, root / "notebooks")
    (root / "requirements.txt").write_text("torch==2.13.0\n", "utf-8")
    return Project(root)


@pytest.fixture
def book(tmp_path: Path, project: Project) -> Project:
    """The sample book, not yet run."""
    root = tmp_path / "a book"
    root.mkdir()
    return make_book(root, project)


@pytest.fixture(scope="module")
def module_book(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Project:
    """The sample book, shared by the tests of one module."""
    return make_book(tmp_path_factory.mktemp("a book"), project)


@pytest.fixture
def sample() -> dict[str, Any]:
    """The sample lesson as dictionaries."""
    notebook: dict[str, Any] = json.loads(SAMPLE.read_text("utf-8"))
    return notebook


@pytest.fixture
def notebook() -> Callable[..., dict[str, Any]]:
    """Makes a notebook of code cells from their sources."""

    def make(*sources: str, **metadata: Any) -> dict[str, Any]:
        cells = [
            {
                "cell_type": "code",
                "id": f"cell-{n}",
                "metadata": dict(metadata),
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for n, source in enumerate(sources, start=1)
        ]
        return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}

    return make


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Replaces text in a cell's source of a notebook's file."""

    def replace(path: Path, old: str, new: str) -> None:
        content = json.loads(path.read_text("utf-8"))
        sources = [cell["source"] for cell in content["cells"]]
        assert any(old in source for source in sources), old
        for cell in content["cells"]:
            cell["source"] = cell["source"].replace(old, new)
        path.write_text(json.dumps(content), "utf-8")

    return replace
