"""Looking at a notebook's cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Notebook = dict[str, Any]
Cell = dict[str, Any]

SLIDE_TYPES = ("slide", "subslide", "fragment", "notes", "skip")
OWN_TAGS = ("setup", "machine", "predict", "break", "exercise", "check", "solution", "time")
BOOK_TAGS = ("hide-input", "hide-output", "remove-input", "remove-output", "raises-exception")


def tags(cell: Cell) -> list[str]:
    return list(cell["metadata"].get("tags", []))


def tagged(notebook: Notebook, tag: str) -> list[Cell]:
    return [cell for cell in notebook["cells"] if tag in tags(cell)]


def code_cells(notebook: Notebook) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def prose_cells(notebook: Notebook) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]


def where(notebook: Notebook, cell: Cell) -> str:
    """A cell's number, from 1, and its first words."""
    number = next(n for n, other in enumerate(notebook["cells"], start=1) if other is cell)
    words = cell["source"].strip().partition("\n")[0][:40]
    return f"cell {number} ({words!r})" if words else f"cell {number}"


def without_code(source: str) -> str:
    """Markdown without its fenced blocks and code spans."""
    return re.sub(r"`[^`\n]*`", " ", re.sub(r"^(```|~~~).*?^\1", " ", source, flags=re.DOTALL | re.MULTILINE))


def headings(notebook: Notebook) -> Iterator[tuple[Cell, int, str]]:
    """Every heading with its cell and level."""
    for cell in prose_cells(notebook):
        for found in re.finditer(r"^(#{1,6})\s+(.+?)\s*$", without_fences(cell["source"]), re.MULTILINE):
            yield cell, len(found[1]), found[2]


def without_fences(source: str) -> str:
    return re.sub(r"^(```|~~~).*?^\1", " ", source, flags=re.DOTALL | re.MULTILINE)


def records(notebook: Notebook, mime: str) -> Iterator[tuple[int, Any]]:
    """The records of one MIME type in an executed notebook, each with the number of its cell."""
    for number, cell in enumerate(notebook["cells"], start=1):
        for output in cell.get("outputs", []):
            if mime in output.get("data", {}):
                yield number, output["data"][mime]
