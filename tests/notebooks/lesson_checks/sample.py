"""A small lesson in which every check finds nothing wrong; tests plant one fault each."""

from __future__ import annotations

from typing import Any

from lesson_checks.cells import Notebook

SETUP = """try:
    import hwlessons
except ModuleNotFoundError:
    raise SystemExit("hwlessons is not installed here: run  python -m pip install -e .  in the book's folder") from None
from hwlessons import show, units

show.quiet_errors()"""

MACHINE = """show.machine({"device": "cpu", "device_name": "Sample CPU", "kernels": "cpu",
              "torch": "2.13.0", "python": "3.11"})"""

TITLE = """# A sample

How many bytes does a parameter cost?

You will be able to **count** bytes, **convert** GB to GiB and **check** both."""

PREDICT = """**Predict** the bytes of 600 M parameters. Write down your guess: is it below 5 GB?

| symbol | meaning | code name |
|---|---|---|
| $N$ | parameters | `num_parameters` |"""

SOLUTION = """<details><summary>Solution</summary>

Half of the parameters, half of the bytes: 4.47 GiB.

```python
my_gib = units.gib(300_000_000 * 16)
```

</details>"""

SOURCES = """## Sources

- S. Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, Section 3.1
- [torch documentation](https://docs.pytorch.org/docs/stable/optim.html), version 2.13

Next: [another sample](02_sample.ipynb)."""

FIGURE = """show.bars(["fp32", "bf16"], [16, 8], title="Bytes per parameter",
          value_label="model states (B)", kind="computed")"""

CLAIM = "show.claim('model states', predicted=9.6e9, measured=num_bytes, unit='B', kind='computed')"

EXERCISE = """## Exercise

In GiB: half as many.

<details><summary>Hint</summary>

Divide.

</details>"""

CELLS: list[tuple[str, str, str, list[str]]] = [
    ("title", "markdown", TITLE, ["slide"]),
    ("times", "markdown", "Reading 5 min, running 2 s.", ["time", "skip"]),
    ("setup", "code", SETUP, ["setup", "skip"]),
    ("machine", "code", MACHINE, ["machine", "skip"]),
    ("predict", "markdown", PREDICT, ["predict", "slide"]),
    ("count", "code", "num_parameters = 600_000_000", ["fragment"]),
    ("prose-1", "markdown", "## By hand\n\nFour bytes four times, and both moments:", ["subslide"]),
    ("formula", "code", "num_bytes = num_parameters * (4 + 4 + 4 + 4)\nbytes_each = 16", ["fragment"]),
    ("prose-2", "markdown", "That makes $16\\,\\text{bytes}$ each. The same in the package:", ["notes"]),
    ("run", "code", "print(units.format_bytes_both(num_bytes))", ["fragment"]),
    ("prose-3", "markdown", "That is 9.6 GB or 8.94 GiB: not the same unit.", ["fragment"]),
    ("ratio", "code", "print(f'{1 - units.GB / units.GIB:.2f}')", ["skip"]),
    ("prose-4", "markdown", "## Claim\n\nThe names differ by 7 %.", ["subslide"]),
    ("claim", "code", CLAIM, ["fragment"]),
    ("prose-5", "markdown", "Between 8 and 16 bytes, by recipe:", ["notes"]),
    ("figure", "code", FIGURE, ["fragment"]),
    ("takeaway", "markdown", "**Takeaway:** 8–16 B per parameter.", ["fragment"]),
    ("prose-6", "markdown", "## Break it\n\nForget the gradients:", ["slide"]),
    ("broken", "code", "assert num_bytes != num_parameters * 12, 'gradients are missing'", ["break", "fragment"]),
    ("ask", "markdown", EXERCISE, ["slide"]),
    ("stub", "code", "my_gib = ...", ["exercise", "fragment"]),
    ("check", "code", "show.check('half', my_gib, units.gib(4.8e9), unit='GiB', rel_tol=0.01)", ["check", "fragment"]),
    ("solution", "markdown", SOLUTION, ["solution", "skip"]),
    ("leaves-out", "markdown", "## What this leaves out\n\nActivations.", ["subslide"]),
    ("summary", "markdown", "## Summary\n\nCount.", ["subslide"]),
    ("sources", "markdown", SOURCES, ["skip"]),
]  # fmt: skip


def sample_lesson() -> Notebook:
    """A fresh copy of the sample, as it would be committed."""
    notebook: Notebook = {
        "cells": [_cell(*cell) for cell in CELLS],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    cell(notebook, "stub")["metadata"]["wrong_answers"] = ["4.8", "8.94", "'4.47'"]
    return notebook


def cell(notebook: Notebook, cell_id: str) -> dict[str, Any]:
    """The cell with an id."""
    return next(cell for cell in notebook["cells"] if cell["id"] == cell_id)


def _cell(cell_id: str, cell_type: str, source: str, cell_tags: list[str]) -> dict[str, Any]:
    slide = next(tag for tag in cell_tags if tag in ("slide", "subslide", "fragment", "notes", "skip"))
    made: dict[str, Any] = {
        "cell_type": cell_type, "id": cell_id, "source": source,
        "metadata": {"tags": list(cell_tags), "slideshow": {"slide_type": slide}},
    }  # fmt: skip
    return made | ({"outputs": [], "execution_count": None} if cell_type == "code" else {})
