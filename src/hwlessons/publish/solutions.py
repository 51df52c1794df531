"""The second run of a lesson: its exercises solved, and its checks tried on wrong answers.

An exercise is a code cell tagged `exercise` that assigns `...`; the next cell tagged `check` looks at the answer, and
the next one tagged `solution` is Markdown whose first fenced Python block replaces the stub.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from typing import Any

EXERCISE_MIME = "application/vnd.hwlessons.exercise+json"
WRONG_TAG = "wrong-answer"
_FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """Where an exercise of a notebook is: indices of its three cells, and the first variable of its stub."""

    stub: int
    check: int
    solution: int
    variable: str


def _tagged(cell: Any, tag: str) -> bool:
    return tag in cell["metadata"].get("tags", [])


def exercises(notebook: Any) -> list[Exercise]:
    """Returns the exercises of a notebook, in order.

    Raises:
        ValueError: An exercise lacks its check or its solution, or its stub does not begin with an assignment.
    """
    cells = notebook["cells"]
    stubs = [n for n, cell in enumerate(cells) if _tagged(cell, "exercise")]
    found = []
    for stub, end in zip(stubs, [*stubs[1:], len(cells)], strict=True):
        partners = {}
        for tag in ("check", "solution"):
            index = next((n for n in range(stub + 1, end) if _tagged(cells[n], tag)), None)
            if index is None:
                raise ValueError(
                    f"exercise in cell {stub + 1}: no cell tagged {tag!r} follows it before the next exercise"
                )
            partners[tag] = index
        found.append(Exercise(stub, partners["check"], partners["solution"], _first_variable(cells[stub], stub)))
    return found


def _first_variable(cell: Any, index: int) -> str:
    statements = ast.parse(cell["source"]).body
    if (
        not statements
        or not isinstance(statements[0], ast.Assign)
        or not isinstance(statements[0].targets[0], ast.Name)
    ):
        raise ValueError(f"exercise in cell {index + 1} must begin with an assignment such as `my_answer = ...`")
    return statements[0].targets[0].id


def with_solutions(notebook: Any) -> Any:
    """Returns a copy of a notebook in which every stub is replaced by its solution.

    Raises:
        ValueError: As `exercises` does, or a solution holds no fenced Python block.
    """
    solved = copy.deepcopy(notebook)
    for exercise in exercises(notebook):
        block = _FENCE.search(solved["cells"][exercise.solution]["source"])
        if block is None:
            raise ValueError(f"the solution in cell {exercise.solution + 1} holds no ```python block")
        solved["cells"][exercise.stub]["source"] = block.group(1).rstrip("\n")
    return solved


def with_wrong_answers(notebook: Any) -> Any:
    """Returns a copy of a notebook that also runs each check on the wrong answers its exercise lists.

    The answers are Python expressions in the stub's metadata, under `wrong_answers`. Each is tried in a cell of its
    own (tagged `wrong-answer`) that starts from the stub's present content and puts it back afterwards.
    """
    extended = copy.deepcopy(notebook)
    for exercise in reversed(exercises(notebook)):
        stub, check = (notebook["cells"][n] for n in (exercise.stub, exercise.check))
        extra = []
        for number, answer in enumerate(stub["metadata"].get("wrong_answers", []), start=1):
            source = f"{stub['source']}\n{exercise.variable} = ({answer})\n{check['source']}"
            extra.append(_code_cell(f"{stub['id']}-wrong-{number}", source, [WRONG_TAG]))
        if extra:
            extra.append(_code_cell(f"{stub['id']}-again", stub["source"], []))
        extended["cells"][exercise.check + 1 : exercise.check + 1] = extra
    return extended


def _code_cell(cell_id: str, source: str, tags: list[str]) -> dict[str, Any]:
    metadata = {"tags": tags}
    return {
        "cell_type": "code",
        "id": cell_id[-64:],
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def exercise_problems(executed: Any) -> list[str]:
    """Returns what is wrong with the exercises of an executed second run; nothing where all is well.

    Every check must call the solution right, and every wrong answer wrong.
    """
    problems = []
    for number, cell in enumerate(executed["cells"], start=1):
        expected = "wrong" if _tagged(cell, WRONG_TAG) else "right" if _tagged(cell, "check") else None
        if expected is None:
            continue
        verdicts = [o["data"][EXERCISE_MIME]["verdict"] for o in cell["outputs"] if EXERCISE_MIME in o.get("data", {})]
        as_expected = "wrong" in verdicts if expected == "wrong" else set(verdicts) == {"right"}
        if not as_expected:
            said = ", ".join(verdicts) or "nothing"
            problems.append(f"cell {number} should be called {expected}, the check says {said}: {cell['source']!r}")
    return problems
