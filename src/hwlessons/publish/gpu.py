"""Runs all lessons on a GPU machine with that machine's own torch, and keeps one evidence file."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from hwlessons.publish.collect import collect, new_file
from hwlessons.publish.paths import Project, PublishError
from hwlessons.publish.run import run_lessons
from hwlessons.publish.store import write_text

NEEDED = ("torch", "numpy", "matplotlib", "nbclient", "ipykernel", "anywidget")
OLDEST_TORCH = "2.9"


def check_runner() -> None:
    """Checks that the running Python can run lessons; nothing is installed.

    Raises:
        PublishError: A package is missing, or torch is older than the lessons support.
    """
    missing = []
    for name in NEEDED:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if "torch" in missing:
        raise PublishError("this Python has no torch; name the Python that has it: make gpu PYTHON=/path/to/python")
    if missing:
        raise PublishError(
            f"this Python lacks {', '.join(missing)}; install them: python -m pip install {' '.join(missing)}"
        )
    torch = metadata.version("torch")
    if Version(torch).release < Version(OLDEST_TORCH).release:
        raise PublishError(f"torch {torch} is too old for the lessons; they need torch {OLDEST_TORCH} or newer")


def record_run(project: Project, lessons: list[Path], say: Callable[[str], None] = print) -> Path:
    """Runs the lessons on `HWLESSONS_DEVICE` (default `cuda`) and writes their evidence.

    Returns:
        The new file below `book/evidence`.

    Raises:
        PublishError: The runner lacks something, a lesson fails, or its evidence is not as it must be.
    """
    check_runner()
    os.environ.setdefault("HWLESSONS_DEVICE", "cuda")
    evidence = collect(project, run_lessons(project, lessons, force=True, say=say))
    path = new_file(project.recorded_runs, evidence)
    write_text(path, evidence.dumps())
    return path
