"""Runs the lessons that must run, one after another, and keeps what came out."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwlessons import units
from hwlessons.publish import store
from hwlessons.publish.keys import code_cells, lesson_hash, lesson_key
from hwlessons.publish.modules import package_hash
from hwlessons.publish.paths import Project
from hwlessons.publish.progress import Progress
from hwlessons.publish.solutions import with_solutions, with_wrong_answers
from hwlessons.publish.store import PLAIN, SOLUTIONS, RunRecord


def run_lessons(
    project: Project,
    lessons: list[Path],
    *,
    solutions: bool = False,
    force: bool = False,
    say: Callable[[str], None] = print,
) -> list[RunRecord]:
    """Runs every lesson whose last run is not good any more, strictly one after another.

    Args:
        project: The checkout.
        lessons: Notebooks to look at.
        solutions: Run the variant with all solutions in place and all wrong answers tried.
        force: Run also what need not run.
        say: Prints a line.

    Returns:
        One record a lesson, in the order given.

    Raises:
        LessonFailed: A cell raised; lessons before it are kept.
    """
    variant = SOLUTIONS if solutions else PLAIN
    waiting: list[tuple[Path, Any, str]] = []
    records: dict[Path, RunRecord] = {}
    for path in lessons:
        notebook = _prepare(path, solutions)
        key = lesson_key(notebook, project)
        record = store.load_record(project, path.stem, variant)
        if record is None or record.key != key or force:
            waiting.append((path, notebook, key))
        else:
            records[path] = record
    with Progress(sum(len(notebook["cells"]) for _, notebook, _ in waiting)) as progress:
        for path, notebook, key in waiting:
            from hwlessons.publish.execute import run_notebook  # slow to import, and not needed where nothing runs

            progress.begin(path.stem + (" (solutions)" if solutions else ""))
            ran = run_notebook(notebook, path.stem + variant, path.parent, progress.advance)
            record = _record(project, path, notebook, key, ran.seconds, ran.peak_memory_bytes)
            store.save(project, ran.notebook, record, variant)
            records[path] = record
    if waiting:
        say(times_table([records[path] for path in lessons]))
    return [records[path] for path in lessons]


def _prepare(path: Path, solutions: bool) -> Any:
    notebook = store.read_notebook(path)
    for cell in code_cells(notebook):
        cell["outputs"], cell["execution_count"] = [], None
    return with_wrong_answers(with_solutions(notebook)) if solutions else notebook


def _record(project: Project, path: Path, notebook: Any, key: str, seconds: float, peak_memory_bytes: int) -> RunRecord:
    cells = code_cells(notebook)
    return RunRecord(
        key=key,
        lesson_id=path.stem,
        lesson_hash=lesson_hash(notebook),
        package_hash=package_hash([cell["source"] for cell in cells]),
        seconds=round(seconds, 2),
        peak_memory_bytes=peak_memory_bytes,
        num_cells=len(cells),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=commit(project.root),
    )


def commit(root: Path) -> str:
    """Returns the checkout's commit, with `+changes` where tracked files differ; "unknown" where git cannot tell."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        changes = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def times_table(records: list[RunRecord]) -> str:
    """Returns the table of run times as text, a line a lesson and one for all."""
    width = max(len(record.lesson_id) for record in records)
    lines = [f"{'lesson':{width}}  {'seconds':>8}  {'peak memory':>11}"]
    for record in records:
        peak = units.format_bytes(record.peak_memory_bytes) if record.peak_memory_bytes else "not known"
        lines.append(f"{record.lesson_id:{width}}  {record.seconds:8.1f}  {peak:>11}")
    lines.append(f"{'all':{width}}  {sum(record.seconds for record in records):8.1f}")
    return "\n".join(lines)
