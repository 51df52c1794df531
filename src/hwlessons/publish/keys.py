"""When a lesson must run again: the key of everything that its outputs depend on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from hwlessons.publish.modules import package_hash
from hwlessons.publish.paths import Project


def code_cells(notebook: Any) -> list[Any]:
    """Returns the code cells of a notebook, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def lesson_hash(notebook: Any) -> str:
    """Returns the SHA-256 of what a notebook runs: the source and the tags of its code cells.

    Prose is left out, so that mending a sentence does not run the lesson again.
    """
    cells = [[cell["source"], sorted(cell["metadata"].get("tags", []))] for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def torch_version() -> str:
    """Returns the version of the installed torch, without importing it; "none" where there is no torch."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "none"


def files_hash(paths: list[Path], root: Path) -> str:
    """Returns the SHA-256 of the files' names (below `root`) and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def requirements(project: Project) -> list[Path]:
    """Returns the files that pin what is installed."""
    return [*project.root.glob("requirements*.txt")]


def lesson_key(notebook: Any, project: Project) -> str:
    """Returns the key under which a lesson's run is kept.

    It changes with the code cells, the modules of the package that they reach, the pinned requirements, Python, torch,
    the chosen device, the way lessons are run, and, for a lesson that shows recorded runs, those records.
    """
    sources = [cell["source"] for cell in code_cells(notebook)]
    runner = Path(__file__).parent
    parts = [
        lesson_hash(notebook),
        package_hash(sources),
        files_hash(requirements(project), project.root),
        files_hash([runner / "execute.py", runner / "kernel.py"], runner),
        platform.python_version(),
        platform.machine(),
        torch_version(),
        os.environ.get("HWLESSONS_DEVICE", ""),
    ]
    if any(re.search(r"\brecorded\b", source) for source in sources):
        parts.append(files_hash([*project.recorded_runs.glob("*.json")], project.root))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
