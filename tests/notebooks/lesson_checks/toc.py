"""The table of contents names every lesson once, in order, and nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def contents(toc: dict[str, Any], root: Path) -> list[str]:
    """Entries without a file, lessons left out, twice or out of order."""
    entries = list(_files(toc))
    problems = [
        f"{entry} has no file"
        for entry in entries
        if not any((root / f"{entry}{end}").is_file() for end in (".md", ".ipynb"))
    ]
    named = [entry for entry in entries if entry.startswith("notebooks/")]
    there = sorted(f"notebooks/{path.stem}" for path in (root / "notebooks").glob("*.ipynb"))
    problems += [f"{lesson} is not in the table of contents" for lesson in there if lesson not in named]
    problems += [f"{entry} is named twice" for entry in sorted(set(entries)) if entries.count(entry) > 1]
    if named != sorted(named):
        problems.append("the lessons are not in the order of their numbers")
    return problems + [
        f"{lesson} is not called NN_name" for lesson in there if not re.fullmatch(r"notebooks/\d\d_[a-z0-9_]+", lesson)
    ]


def _files(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (node[key] for key in ("root", "file") if key in node)
        for value in node.values():
            yield from _files(value)
    elif isinstance(node, list):
        for item in node:
            yield from _files(item)
