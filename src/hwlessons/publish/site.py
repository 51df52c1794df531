"""Builds the site from the executed lessons; does nothing where nothing changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from hwlessons.publish.collect import collect
from hwlessons.publish.keys import files_hash, requirements
from hwlessons.publish.modules import PACKAGE_FOLDER
from hwlessons.publish.paths import Project, PublishError
from hwlessons.publish.run import run_lessons
from hwlessons.publish.store import RunRecord, executed_path, write_text

# In place of jupyter-book's bare redirect, for which a browser may ask the server for a favicon.ico.
_FIRST_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Contents</title>
<link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0; url=book/index.html">
</head>
<body><a href="book/index.html">Contents</a></body>
</html>
"""


class SiteFailed(PublishError):
    """Sphinx ended with a warning or an error; the message holds what it said."""


def build_book(project: Project, say: Callable[[str], None] = print) -> Path:
    """Runs the lessons that must run, collects their evidence, and builds the site.

    Returns:
        The site's first page.

    Raises:
        PublishError: A lesson fails, evidence is not as it must be, or Sphinx warns.
    """
    records = run_lessons(project, project.lessons() and project.select([]), say=say)
    if not records:
        project.select([])
    write_text(project.evidence, collect(project, records).dumps())
    return build_site(project, records, say)


def build_site(project: Project, records: list[RunRecord], say: Callable[[str], None] = print) -> Path:
    """Builds the site where an input changed since the last good build; see `build_book`."""
    first_page = project.html / "index.html"
    stamp = project.build / "site.json"
    machinery, content = fingerprints(project, records)
    now = {"machinery": machinery, "content": content}
    try:
        before = json.loads(stamp.read_text("utf-8"))
    except (OSError, ValueError):
        before = {}
    if before == now and first_page.is_file():
        say(f"the book is up to date: {first_page}")
        return first_page
    stamp.unlink(missing_ok=True)
    say("building the pages …")
    _jupyter_book(project, everything=before.get("machinery") != machinery)
    write_text(first_page, _FIRST_PAGE)
    write_text(stamp, json.dumps(now))
    say(f"the book is built: {first_page}")
    return first_page


def fingerprints(project: Project, records: list[RunRecord]) -> tuple[str, str]:
    """Returns two hashes: of what all pages depend on, and of the pages and the lessons' runs."""
    package = PACKAGE_FOLDER
    parts = [package / "publish", package / "show"]
    sources = [path for part in parts for path in _files([part]) if "__pycache__" not in path.parts]
    settings = [project.root / "_config.yml", project.root / "book" / "_toc.yml", *requirements(project)]
    pages = [*_files([project.root / "book"]), *project.lessons()]
    executed = [executed_path(project, record.lesson_id) for record in records]
    machinery = files_hash(sources, package) + files_hash(settings, project.root)
    return machinery, files_hash([*pages, *executed, project.evidence], project.root)


def _files(folders: Iterable[Path]) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def _jupyter_book(project: Project, everything: bool) -> None:
    """Calls jupyter-book, with warnings as errors, and keeps what it says in `_build/sphinx.log`."""
    code = "import sys; from jupyter_book.cli.main import main; sys.argv[0] = 'jupyter-book'; main()"
    command = [sys.executable, "-c", code, "build", ".", "--toc", "book/_toc.yml", "-W", "-n", "--keep-going"]
    command += ["--all"] if everything else []
    path = os.pathsep.join(filter(None, [str(PACKAGE_FOLDER.parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"}
    done = subprocess.run(
        command, cwd=project.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    log = project.build / "sphinx.log"
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    write_text(log, said)
    if done.returncode:
        lines = said.splitlines()
        telling = [line for line in lines if any(word in line for word in ("WARNING", "ERROR", "error:", "Error"))]
        raise SiteFailed(
            "\n".join([f"the pages could not be built (all that Sphinx said: {log}):", *(telling or lines[-30:])])
        )
