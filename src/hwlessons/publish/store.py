"""Keeps the last run of each lesson: the executed notebook, and what the run was and took.

Two files a lesson under `_build/lessons`. The site is drawn from them, and nothing else runs a notebook.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hwlessons.publish.keys import code_cells
from hwlessons.publish.paths import Project, PublishError

PLAIN = ""
SOLUTIONS = ".solutions"


@dataclass(frozen=True)
class RunRecord:
    """What one run of a lesson was.

    Attributes:
        key: The key that the run is good for.
        lesson_id: The notebook's name without its ending.
        lesson_hash: SHA-256 of the code cells.
        package_hash: SHA-256 of the modules of the package that they reach.
        seconds: Wall-clock time of the run, kernel start included.
        peak_memory_bytes: The most RAM that the kernel held.
        num_cells: Code cells run.
        date: Day of the run, ISO 8601, UTC.
        commit: The checkout's commit, with `+changes` where files differed from it; "unknown" outside a checkout.
    """

    key: str
    lesson_id: str
    lesson_hash: str
    package_hash: str
    seconds: float
    peak_memory_bytes: int
    num_cells: int
    date: str
    commit: str


def read_notebook(path: Path) -> dict[str, Any]:
    """Returns a notebook of format 4 as plain dictionaries, each source one string.

    Read as JSON, for importing nbformat takes a second that an unchanged build does not have.

    Raises:
        PublishError: The file is no notebook of format 4.
    """
    try:
        notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
        if notebook["nbformat"] != 4:
            raise ValueError(f"format {notebook['nbformat']} instead of 4")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PublishError(f"{path} is no notebook that can be read: {type(error).__name__}: {error}") from None
    return notebook


def title(notebook: Any) -> str:
    """Returns a lesson's title: the first line of its first cell, without the `#`."""
    return str(notebook["cells"][0]["source"].partition("\n")[0].lstrip("# ").strip())


def executed_path(project: Project, lesson_id: str, variant: str = PLAIN) -> Path:
    """Returns where the executed notebook of a lesson is kept."""
    return project.executed / f"{lesson_id}{variant}.ipynb"


def load_record(project: Project, lesson_id: str, variant: str = PLAIN) -> RunRecord | None:
    """Returns the record of a lesson's last run, or None where there is none that can be used."""
    path = executed_path(project, lesson_id, variant)
    try:
        record = RunRecord(**json.loads(path.with_suffix(".json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return record if path.is_file() else None


def save(project: Project, notebook: Any, record: RunRecord, variant: str = PLAIN) -> None:
    """Keeps a run: the notebook first, so that a record never speaks of a notebook that is not there."""
    path = executed_path(project, record.lesson_id, variant)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    write_text(path.with_suffix(".json"), json.dumps(asdict(record), indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all; leaves an equal one, and its time, alone."""
    if path.is_file() and path.read_text("utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text, "utf-8", newline="\n")
    os.replace(temporary, path)


def with_outputs(notebook: Any, executed: Any) -> Any | None:
    """Returns `notebook` with the outputs of `executed`, or None where their code cells differ.

    The prose is the present one, so that a mended sentence shows without another run.
    """
    merged = copy.deepcopy(notebook)
    pairs = list(zip(code_cells(merged), code_cells(executed), strict=False))
    sources = [[cell["source"] for cell in code_cells(nb)] for nb in (merged, executed)]
    if sources[0] != sources[1]:
        return None
    for cell, ran in pairs:
        cell["outputs"], cell["execution_count"] = ran["outputs"], ran["execution_count"]
    merged["metadata"]["language_info"] = executed["metadata"].get("language_info", {"name": "python"})
    return merged
