"""What a lesson contains: question, prediction, claims, figure, something broken, exercises, sources."""

from __future__ import annotations

import ast
import re

from hwlessons.publish.solutions import exercises
from lesson_checks.cells import Cell, Notebook, code_cells, headings, prose_cells, tagged, tags, where

_FIGURE = re.compile(r"\bshow\.(line|bars|stacked_bars|stacked_areas|memory_timeline|figure)\(")
_TIMES = re.compile(r"\bread.*\brun|\brun.*\bread", re.IGNORECASE | re.DOTALL)
_LAST_HEADINGS = ("What this leaves out", "Summary", "Sources")
_LOCATED = re.compile(
    r"§|\b(table|section|sec\.|eq\.|equation|figure|appendix|chapter|algorithm|version|read on|rfc)(\b|\s)",
    re.IGNORECASE,
)
_DETAILS = re.compile(r"<details>\s*<summary>([^<]+)</summary>\s*\n\s*\n")


def opening(notebook: Notebook) -> list[str]:
    """Title, question, what the reader will be able to do, and times."""
    cells = notebook["cells"]
    first = cells[0]["source"] if cells else ""
    opening_prose = "\n".join(cell["source"] for cell in cells[:3] if cell["cell_type"] == "markdown")
    problems = []
    if not first.startswith("# "):
        problems.append("the first cell does not begin with a title (# ...)")
    if "?" not in first:
        problems.append("the first cell asks no question")
    if "You will be able to" not in opening_prose:
        problems.append("the opening does not say what the reader will be able to do (You will be able to ...)")
    times = tagged(notebook, "time")
    if len(times) != 1 or not _TIMES.search(times[0]["source"]):
        problems.append("there is no cell tagged time with the reading and the running time")
    return problems


def one_of_each(notebook: Notebook) -> list[str]:
    """One set-up and one machine cell, in this order, before any other code."""
    code = code_cells(notebook)
    kinds = [tag for cell in code[:2] for tag in tags(cell) if tag in ("setup", "machine")]
    problems = (
        [] if kinds == ["setup", "machine"] else ["the first two code cells are not the set-up and the machine cell"]
    )
    for tag in ("setup", "machine"):
        if len(tagged(notebook, tag)) != 1:
            problems.append(f"{len(tagged(notebook, tag))} cells are tagged {tag}")
    if any("show.machine(" not in cell["source"] for cell in tagged(notebook, "machine")):
        problems.append("the machine cell does not call show.machine(...)")
    return problems


def different_setups(notebooks: dict[str, Notebook]) -> list[str]:
    """Set-up cells that differ in more than their imports from the first lesson's."""
    lines = {
        name: [part for cell in tagged(notebook, "setup") for part in _without_imports(cell["source"])]
        for name, notebook in notebooks.items()
    }
    first = next(iter(lines), "")
    return [f"the set-up of {name} differs from that of {first}" for name in lines if lines[name] != lines[first]]


def setup_without_guard(notebook: Notebook) -> list[str]:
    """A set-up cell that would greet a missing package with a traceback."""
    return [
        f"the set-up cell lacks {part!r}"
        for cell in tagged(notebook, "setup")
        for part in (
            "import hwlessons",
            "except ModuleNotFoundError",
            "raise SystemExit(",
            "pip install",
            "quiet_errors()",
        )
        if part not in cell["source"]
    ]


def ingredients(notebook: Notebook) -> list[str]:
    """Prediction, claim, figure, takeaway, something broken: at least one of each."""
    code = "\n".join(cell["source"] for cell in code_cells(notebook))
    prose = "\n".join(cell["source"] for cell in prose_cells(notebook))
    predict = tagged(notebook, "predict")
    present = {
        "prediction (a prose cell tagged predict)": any(cell["cell_type"] == "markdown" for cell in predict),
        "prompt to guess": any(re.search(r"\?|guess|[Ww]rite down", cell["source"]) for cell in predict),
        "table of symbols and code names": bool(
            re.search(r"^\|\s*symbol\b.*\bcode", prose, re.MULTILINE | re.IGNORECASE)
        ),
        "claim": "show.claim(" in code,
        "figure": bool(_FIGURE.search(code)),
        "**Takeaway**": bool(re.search(r"\*\*Takeaway", prose)),
        "cell that breaks something (a code cell tagged break)": any(
            cell["cell_type"] == "code" for cell in tagged(notebook, "break")
        ),
        "exercise": bool(tagged(notebook, "exercise")),
    }
    return [f"there is no {what}" for what, is_there in present.items() if not is_there]


def ending(notebook: Notebook) -> list[str]:
    """The last sections in their order, and sources that say where in them."""
    found = [text for _, _, text in headings(notebook)]
    places = [found.index(name) if name in found else -1 for name in _LAST_HEADINGS]
    problems = [
        f"there is no heading {name!r}" for name, place in zip(_LAST_HEADINGS, places, strict=True) if place < 0
    ]
    if not problems and places != sorted(places):
        problems.append(f"the last sections are not in the order {', '.join(_LAST_HEADINGS)}")
    sources = _section(notebook, "Sources")
    entries = re.findall(r"^\s*(?:[-*]|\d+\.)\s+.*(?:\n(?!\s*(?:[-*]|\d+\.)\s|\s*\n).*)*", sources, re.MULTILINE)
    if "Sources" in found and not entries:
        problems.append("Sources lists nothing")
    problems += [
        f"the source {entry.strip()[:60]!r} does not say which table or section"
        for entry in entries
        if not _LOCATED.search(entry)
    ]
    if not re.search(r"\bNext\b", notebook["cells"][-1]["source"] if notebook["cells"] else ""):
        problems.append("the last cell does not lead to what comes next (Next: ...)")
    return problems


def exercise_parts(notebook: Notebook) -> list[str]:
    """Stubs that do more than assign ..., checks that check nothing, solutions that show or run nothing."""
    try:
        found = exercises(notebook)
    except (ValueError, SyntaxError) as error:
        return [str(error)]
    problems = []
    for exercise in found:
        stub, check, solution = (notebook["cells"][n] for n in (exercise.stub, exercise.check, exercise.solution))
        place = where(notebook, stub)
        if not all(re.fullmatch(r"\w+ = \.\.\.(\s*#.*)?|#.*|", line) for line in stub["source"].splitlines()):
            problems.append(f"{place} is to hold only assignments such as my_answer = ...")
        if not stub["metadata"].get("wrong_answers"):
            problems.append(f"{place} lists no wrong answers")
        if "show.check(" not in check["source"]:
            problems.append(f"{where(notebook, check)} does not call show.check(...)")
        problems += _solution_problems(notebook, solution)
        between = notebook["cells"][exercise.stub - 1 : exercise.solution + 1]
        if not any("hint" in cell["source"].lower() for cell in between):
            problems.append(f"{place} has no hint")
    return problems


def _solution_problems(notebook: Notebook, solution: Cell) -> list[str]:
    problems, place = [], where(notebook, solution)
    if solution["cell_type"] != "markdown" or "Solution" not in _DETAILS.findall(solution["source"]):
        problems.append(f"{place} is to fold the solution in <details><summary>Solution</summary>, then an empty line")
    if not re.search(r"^```python\n.+?^```", solution["source"], re.DOTALL | re.MULTILINE):
        problems.append(f"{place} holds no ```python block that can run")
    return problems


def _without_imports(source: str) -> list[str]:
    statements = ast.parse(source).body
    return [ast.unparse(part) for part in statements if not isinstance(part, ast.Import | ast.ImportFrom)]


def _section(notebook: Notebook, name: str) -> str:
    prose = "\n\n".join(cell["source"] for cell in prose_cells(notebook))
    found = re.search(rf"^#+ {re.escape(name)}\s*$(.*?)(?=^#|\Z)", prose, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""
