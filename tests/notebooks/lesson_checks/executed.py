"""What an executed lesson must show: claims that hold, figures in words, nothing that only one reader can see."""

from __future__ import annotations

import re
from collections import Counter

from hwlessons.show.claims import CLAIM_MIME
from hwlessons.show.exercises import EXERCISE_MIME
from hwlessons.show.machine import MACHINE_MIME
from hwlessons.show.widgets.scripts import SCRIPTS
from hwlessons.show.widgets.widget import WIDGET_MIME
from lesson_checks.cells import Notebook, records


def claims(notebook: Notebook) -> list[str]:
    """Claims that are broken, nameless twins, made before the machine cell, or missing."""
    found = list(records(notebook, CLAIM_MIME))
    machines = [number for number, _ in records(notebook, MACHINE_MIME)]
    problems = [] if found else ["no claim was made"]
    for number, record in found:
        if record["verdict"] not in ("holds", "not applicable here"):
            problems.append(f"the claim {record['name']!r} is {record['verdict']}")
        if not machines or number < machines[0]:
            problems.append(f"the claim {record['name']!r} is made before the machine is shown")
    twins = [name for name, count in Counter(record["name"] for _, record in found).items() if count > 1]
    return problems + [f"the claim {name!r} is made twice" for name in twins]


def failures(notebook: Notebook) -> list[str]:
    """Errors that were not asked for, and what was written to stderr: readers would stumble over it."""
    problems = []
    for number, cell in enumerate(notebook["cells"], start=1):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                problems.append(f"cell {number} ended in {output['ename']}: {output['evalue'][:80]}")
            if output.get("name") == "stderr":
                problems.append(f"cell {number} wrote to stderr: {''.join(output['text'])[:80]!r}")
    return problems


def stubs(notebook: Notebook) -> list[str]:
    """Exercises that are not simply unanswered in the lesson as it is read."""
    found = list(records(notebook, EXERCISE_MIME))
    problems = [] if found else ["no exercise was checked"]
    answered = [record for _, record in found if record["verdict"] != "unanswered"]
    return problems + [f"exercise {record['name']!r} is {record['verdict']} on its stub" for record in answered]


def outputs_for_everyone(notebook: Notebook) -> list[str]:
    """Pictures without words, tables without captions, things that need a kernel."""
    problems = []
    for number, cell in enumerate(notebook["cells"], start=1):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            html = "".join(data.get("text/html", ""))
            if any(mime.startswith("image/") for mime in data):
                problems.append(f"cell {number} shows a picture that show did not draw")
            if "<table" in html and "<caption" not in html:
                problems.append(f"cell {number} shows a table without a caption")
            if "<svg" in html and not re.search(r'<svg[^>]* aria-label="[^"]+"', html):
                problems.append(f"cell {number} shows a figure without a description")
            if WIDGET_MIME in data and not _is_own_widget(html):
                problems.append(f"cell {number} shows a widget that a page without a kernel cannot show")
            if data and "text/plain" not in data:
                problems.append(f"cell {number} shows something that has no plain text")
    return problems


def _is_own_widget(html: str) -> bool:
    """Whether HTML is the element of one of the book's widgets, with its state and a table for who runs no script."""
    return any(re.match(rf'<{script.element} [^>]*state="[^"]+"[^>]*>.*<table', html, re.DOTALL) for script in SCRIPTS)
