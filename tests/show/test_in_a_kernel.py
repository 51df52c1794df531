"""What a notebook shows and keeps: run in a real kernel."""

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from hwlessons.show.claims import CLAIM_MIME
from hwlessons.show.exercises import EXERCISE_MIME
from hwlessons.show.machine import MACHINE_MIME

CELLS = {
    "setup": "from hwlessons import show\nshow.quiet_errors()",
    "machine": "show.machine(dict(device='cpu', device_name='CPU', kernels='cpu', torch='2.13.0', python='3'))",
    "claim": "c = show.claim('c', predicted=1, measured=1, unit='B', kind='measured')\nc",
    "again": "c",
    "broken": "show.claim('b', predicted=1, measured=2, unit='B', kind='computed')",
    "check": "show.check('q', ..., 3)",
    "mistake": "x = 1\nshow.table([], caption='c', kind='computed')",
    "elsewhere": "int('x')",
    "figure": "show.bars(['a'], [1], title='t', value_label='x (s)', kind='computed')",
    "progress": "for _ in show.progress(range(3), 'work'): pass",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    notebook = new_notebook(cells=[new_code_cell(source, id=name) for name, source in CELLS.items()])
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    nbformat.validate(notebook)
    return {cell.id: cell.outputs for cell in notebook.cells}


@pytest.mark.parametrize(
    ("cell", "mime"),
    [
        ("machine", MACHINE_MIME),
        ("claim", CLAIM_MIME),
        ("broken", CLAIM_MIME),
        ("check", EXERCISE_MIME),
        ("figure", ""),
    ],
)
def test_it_is_shown_once_with_its_record(outputs: dict[str, list[Any]], cell: str, mime: str) -> None:
    shown = [output for output in outputs[cell] if output.output_type != "error"]
    assert [output.output_type for output in shown] == ["display_data"]
    assert set(shown[0].data) == {"text/plain", "text/html", mime} - {""}


def test_shown_again_it_leaves_no_second_record(outputs: dict[str, list[Any]]) -> None:
    [shown] = outputs["again"]
    assert set(shown.data) == {"text/plain", "text/html"}
    assert shown.data["text/plain"] == outputs["claim"][0].data["text/plain"]


def test_a_broken_claim_ends_in_one_line(outputs: dict[str, list[Any]]) -> None:
    error = outputs["broken"][-1]
    assert error.ename == "ClaimError"
    assert len(error.traceback) == 1 and error.traceback[0].startswith("ClaimError: 'b' is broken: predicted 1 B")


def test_a_readers_mistake_ends_in_one_line_that_names_the_cells_line(outputs: dict[str, list[Any]]) -> None:
    [error] = outputs["mistake"]
    assert error.traceback == ["ValueError: rows is empty; a table has at least one row (line 2 of the cell)"]


def test_other_errors_keep_their_traceback(outputs: dict[str, list[Any]]) -> None:
    [error] = outputs["elsewhere"]
    assert "Traceback" in re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))


def test_progress_is_live_where_nobody_builds(outputs: dict[str, list[Any]]) -> None:
    assert outputs["progress"]


def test_a_build_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWLESSONS_BUILD", "1")
    notebook = new_notebook(cells=[new_code_cell(CELLS["setup"]), new_code_cell(CELLS["progress"])])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert notebook.cells[1].outputs == []
