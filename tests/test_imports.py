"""The import contracts of pyproject.toml hold, and each notices an import that it forbids."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hwlessons.publish.paths import Project

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def contracts(root: Path) -> dict[str, bool]:
    """Checks the contracts of the checkout at `root`; whether each is kept, by name."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-c", LINT, "--no-cache"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    found = re.findall(r"^(.+) (KEPT|BROKEN)$", re.sub(r"\x1b\[[0-9;]*m", "", done.stdout), re.MULTILINE)
    assert found, done.stdout + done.stderr
    assert (done.returncode == 0) == all(verdict == "KEPT" for _, verdict in found)
    return {name: verdict == "KEPT" for name, verdict in found}


@pytest.fixture
def copy(tmp_path: Path, project: Project) -> Path:
    """A copy of the package and its contracts, to plant faults in."""
    shutil.copytree(project.root / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(project.root / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_are_kept(project: Project) -> None:
    kept = contracts(project.root)
    assert len(kept) == 3
    assert all(kept.values()), kept


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("units.py", "import hwlessons.facts", "Imports go one way"),
        ("formulas/__init__.py", "import hwlessons.show.tables", "Imports go one way"),
        ("show/tables.py", "from hwlessons.lab import devices", "What a reader sees does not know how it was measured"),
        ("publish/store.py", "import hwlessons.lab", "What a reader sees does not know how it was measured"),
        (
            "show/tables.py",
            "import hwlessons.parallel.orphans",
            "What a reader sees does not know how it was measured",
        ),
        ("lab/seeds.py", "import hwlessons.parallel.orphans", "Imports go one way"),
        ("facts/shapes.py", "import torch", "Looking up, deriving, showing and publishing need no torch"),
        (
            "show/tables.py",
            "import hwlessons.lab.devices",
            "Looking up, deriving, showing and publishing need no torch",
        ),
    ],
)
def test_a_planted_import_breaks_its_contract(copy: Path, module: str, planted: str, contract: str) -> None:
    path = copy / "src" / "hwlessons" / module
    path.write_text(path.read_text("utf-8") + f"\n{planted}\n", "utf-8")
    assert contracts(copy)[contract] is False
