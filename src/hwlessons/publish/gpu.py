"""Runs all lessons on a GPU machine with that machine's own torch, and keeps one evidence file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hwlessons.publish.collect import collect, new_file
from hwlessons.publish.paths import Project
from hwlessons.publish.run import run_lessons
from hwlessons.publish.store import write_text


def record_run(project: Project, lessons: list[Path], say: Callable[[str], None] = print) -> Path:
    """Runs the lessons on `HWLESSONS_DEVICE` (default `cuda`) and writes their evidence.

    Returns:
        The new file below `book/evidence`.

    Raises:
        PublishError: A lesson fails, or its evidence is not as it must be.
    """
    os.environ.setdefault("HWLESSONS_DEVICE", "cuda")
    evidence = collect(project, run_lessons(project, lessons, force=True, say=say))
    path = new_file(project.recorded_runs, evidence)
    write_text(path, evidence.dumps())
    return path
