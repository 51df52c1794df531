"""How a lesson's file is to be: stripped, short cells, prose between code, plain Markdown, tags for slides."""

from __future__ import annotations

import re
from itertools import pairwise
from statistics import median

from lesson_checks.cells import (
    BOOK_TAGS,
    OWN_TAGS,
    SLIDE_TYPES,
    Notebook,
    code_cells,
    headings,
    prose_cells,
    tags,
    where,
    without_code,
)

MOST_LINES = 25
MEDIAN_LINES = 7
FEWEST_CELLS, MOST_CELLS = 20, 45
MOST_CODE_IN_A_ROW = 2

_MYST = {
    "a directive": re.compile(r"^(`{3,}|~{3,}|:{3,})\s*\{|^:::", re.MULTILINE),
    "a role": re.compile(r"\{[a-z:-]+\}`"),
    "a target": re.compile(r"^\([\w-]+\)=\s*$", re.MULTILINE),
    "a link to a heading of another notebook": re.compile(r"\]\([^)]*\.ipynb#"),
    "a picture without alternative text": re.compile(r"!\[\s*\]\("),
    "a link without text": re.compile(r"(?<!!)\[\s*\]\("),
}
_HTML = re.compile(r"</?(?!details\b|summary\b|br\b|sub\b|sup\b|kbd\b|https?:)[a-zA-Z][^<>]*>")
_BYPASSES = {
    "matplotlib.pyplot": re.compile(r"\bpyplot\b|\bplt\."),
    "its own choice of device": re.compile(r"\bis_available\(|\.cuda\(\)|torch\.device\(|\.to\(\s*['\"](cuda|mps|cpu)"),
    "a shell or pip line": re.compile(r"^\s*[!%]", re.MULTILINE),
}


def not_stripped(notebook: Notebook) -> list[str]:
    """Outputs, counts and the traces of a run; ids missing or double; another kernel."""
    problems = []
    for cell in code_cells(notebook):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            problems.append(f"{where(notebook, cell)} holds outputs; strip them with nbstripout --keep-id")
    for cell in notebook["cells"]:
        extra = set(cell["metadata"]) - {"tags", "slideshow", "wrong_answers"}
        if extra:
            problems.append(f"{where(notebook, cell)} has the metadata {', '.join(sorted(extra))}")
    ids = [cell.get("id") for cell in notebook["cells"]]
    if None in ids or len(set(ids)) < len(ids):
        problems.append("cells lack ids, or share one")
    kernel = notebook["metadata"].get("kernelspec", {}).get("name")
    if kernel != "python3":
        problems.append(f"the kernel is {kernel!r}, not 'python3'")
    if (notebook.get("nbformat"), notebook.get("nbformat_minor", 0) >= 5) != (4, True):
        problems.append("the notebook's format is older than 4.5, which has no cell ids")
    return problems


def cell_lengths(notebook: Notebook) -> list[str]:
    """Code cells of more than 25 lines, or of more than 7 in the median."""
    lengths = {where(notebook, cell): len(cell["source"].splitlines()) for cell in code_cells(notebook)}
    problems = [
        f"{place} has {lines} lines, more than {MOST_LINES}" for place, lines in lengths.items() if lines > MOST_LINES
    ]
    if lengths and median(lengths.values()) > MEDIAN_LINES:
        problems.append(
            f"half of the code cells have more than {MEDIAN_LINES} lines (median {median(lengths.values())})"
        )
    return problems + [f"{place} is empty" for place, lines in lengths.items() if lines == 0]


def cell_count(notebook: Notebook) -> list[str]:
    """Too few or too many cells."""
    count = len(notebook["cells"])
    return (
        [] if FEWEST_CELLS <= count <= MOST_CELLS else [f"{count} cells; a lesson has {FEWEST_CELLS} to {MOST_CELLS}"]
    )


def code_without_prose(notebook: Notebook) -> list[str]:
    """More than two code cells in a row."""
    problems, run = [], 0
    for cell in notebook["cells"]:
        run = run + 1 if cell["cell_type"] == "code" else 0
        if run == MOST_CODE_IN_A_ROW + 1:
            problems.append(f"{where(notebook, cell)} is the third code cell in a row; say something in between")
    return problems


def slide_tags(notebook: Notebook) -> list[str]:
    """Cells without exactly one kind of slide, said twice alike; tags that nobody knows."""
    problems = []
    for cell in notebook["cells"]:
        place, kind = where(notebook, cell), cell["metadata"].get("slideshow", {}).get("slide_type")
        if kind not in SLIDE_TYPES:
            problems.append(f"{place} has the slide type {kind!r}; it is one of {', '.join(SLIDE_TYPES)}")
        elif [tag for tag in tags(cell) if tag in SLIDE_TYPES] != [kind]:
            problems.append(f"{place} is tagged {', '.join(tags(cell)) or 'nothing'}, its slide type is {kind!r}")
        unknown = set(tags(cell)) - {*SLIDE_TYPES, *OWN_TAGS, *BOOK_TAGS}
        if unknown:
            problems.append(f"{place} has unknown tags: {', '.join(sorted(unknown))}")
    if notebook["cells"] and "slide" not in tags(notebook["cells"][0]):
        problems.append("the first cell does not begin a slide")
    return problems


def not_plain_markdown(notebook: Notebook) -> list[str]:
    """What JupyterLab, Colab or a reviewer would not see as the site shows it."""
    problems = []
    for cell in prose_cells(notebook):
        for what, pattern in _MYST.items():
            if pattern.search(cell["source"]):
                problems.append(f"{where(notebook, cell)} holds {what}")
        found = _HTML.search(without_code(cell["source"]))
        if found:
            problems.append(f"{where(notebook, cell)} holds the HTML {found[0]}; only details and summary are plain")
    return problems


def heading_order(notebook: Notebook) -> list[str]:
    """More than one title, or a level left out."""
    levels = [(level, text) for _, level, text in headings(notebook)]
    problems = [f"a second title: {text!r}" for level, text in levels[1:] if level == 1]
    for (above, _), (level, text) in pairwise(levels):
        if level > above + 1:
            problems.append(f"the heading {text!r} leaves out a level")
    return problems


def bypasses(notebook: Notebook) -> list[str]:
    """Code that goes around what the package provides for all lessons."""
    return [
        f"{where(notebook, cell)} uses {what}"
        for cell in code_cells(notebook)
        for what, pattern in _BYPASSES.items()
        if pattern.search(cell["source"])
    ]
