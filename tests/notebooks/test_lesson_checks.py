"""Every check of the lessons passes a good sample and finds the fault that is planted in it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lesson_checks import executed, structure, template
from lesson_checks.all_checks import FILE_CHECKS, RUN_CHECKS, Check
from lesson_checks.cells import Notebook
from lesson_checks.prose_numbers import unproven_numbers
from lesson_checks.sample import cell, sample_lesson
from lesson_checks.toc import contents

from hwlessons import show
from hwlessons.publish import store
from hwlessons.publish.paths import Project
from hwlessons.publish.run import run_lessons
from hwlessons.publish.solutions import exercise_problems
from hwlessons.show.claims import CLAIM_MIME
from hwlessons.show.exercises import EXERCISE_MIME
from hwlessons.show.widgets.widget import WIDGET_MIME

Fault = Callable[[Notebook], Any]


def edit(cell_id: str, old: str, new: str) -> Fault:
    def plant(notebook: Notebook) -> None:
        target = cell(notebook, cell_id)
        assert old in target["source"]
        target["source"] = target["source"].replace(old, new)

    return plant


def append(cell_id: str, text: str) -> Fault:
    def plant(notebook: Notebook) -> None:
        cell(notebook, cell_id)["source"] += text

    return plant


def change(cell_id: str, **entries: Any) -> Fault:
    return lambda notebook: cell(notebook, cell_id).update(entries)


def meta(cell_id: str, **entries: Any) -> Fault:
    return lambda notebook: cell(notebook, cell_id)["metadata"].update(entries)


def without(*cell_ids: str) -> Fault:
    def plant(notebook: Notebook) -> None:
        notebook["cells"] = [one for one in notebook["cells"] if one["id"] not in cell_ids]

    return plant


def move_to_end(cell_id: str) -> Fault:
    def plant(notebook: Notebook) -> None:
        cells = notebook["cells"]
        cells.append(cells.pop(cells.index(cell(notebook, cell_id))))

    return plant


def all_code(source: str) -> Fault:
    def plant(notebook: Notebook) -> None:
        for one in notebook["cells"]:
            if one["cell_type"] == "code":
                one["source"] = source

    return plant


FILE_FAULTS: list[tuple[Check, Fault, str]] = [
    (structure.not_stripped, change("run", outputs=[{}]), "holds outputs"),
    (structure.not_stripped, change("run", execution_count=3), "holds outputs"),
    (structure.not_stripped, meta("run", execution={"iopub": 1}), "metadata execution"),
    (structure.not_stripped, change("run", id="ratio"), "share one"),
    (structure.not_stripped, lambda n: cell(n, "run").pop("id"), "lack ids"),
    (structure.not_stripped, lambda n: n["metadata"].update(kernelspec={"name": "venv"}), "kernel is 'venv'"),
    (structure.not_stripped, lambda n: n.update(nbformat_minor=4), "older than 4.5"),
    (structure.cell_lengths, change("run", source="x = 1\n" * 26), "26 lines, more than 25"),
    (structure.cell_lengths, all_code("x = 1\n" * 8), "more than 7 lines (median 8)"),
    (structure.cell_lengths, change("run", source=""), "is empty"),
    (structure.cell_count, lambda n: n.update(cells=n["cells"][:19]), "19 cells"),
    (structure.cell_count, lambda n: n.update(cells=n["cells"] * 2), "52 cells"),
    (structure.code_without_prose, without("predict"), "third code cell in a row"),
    (structure.slide_tags, meta("run", slideshow={}), "slide type None"),
    (structure.slide_tags, meta("run", tags=["skip"]), "is tagged skip, its slide type is 'fragment'"),
    (structure.slide_tags, meta("run", tags=["fragment", "slide"]), "is tagged fragment, slide"),
    (structure.slide_tags, meta("run", tags=["fragment", "sloution"]), "unknown tags: sloution"),
    (structure.slide_tags, without("title"), "does not begin a slide"),
    (structure.not_plain_markdown, append("prose-2", "\n\n```{note}\nx\n```"), "a directive"),
    (structure.not_plain_markdown, append("prose-2", "\n\n:::{tip}\nx\n:::"), "a directive"),
    (structure.not_plain_markdown, append("prose-2", " {ref}`x`"), "a role"),
    (structure.not_plain_markdown, append("prose-2", "\n(here)=\n"), "a target"),
    (structure.not_plain_markdown, append("prose-2", " [x](05_a.ipynb#b)"), "a link to a heading"),
    (structure.not_plain_markdown, append("prose-2", " ![](a.png)"), "alternative text"),
    (structure.not_plain_markdown, append("prose-2", " [](05_a.ipynb)"), "a link without text"),
    (structure.not_plain_markdown, append("prose-2", " <div class='x'>y</div>"), "holds the HTML <div"),
    (structure.heading_order, append("prose-2", "\n\n# Again"), "a second title: 'Again'"),
    (structure.heading_order, append("prose-2", "\n\n#### Deep"), "'Deep' leaves out a level"),
    (structure.bypasses, append("run", "\nimport matplotlib.pyplot as plt"), "uses matplotlib.pyplot"),
    (structure.bypasses, append("run", "\nx.to('cuda')"), "its own choice of device"),
    (structure.bypasses, append("run", "\ntorch.cuda.is_available()"), "its own choice of device"),
    (structure.bypasses, append("run", "\n!pip install x"), "a shell or pip line"),
    (template.opening, edit("title", "# A sample", "A sample"), "does not begin with a title"),
    (template.opening, edit("title", "?", "."), "asks no question"),
    (template.opening, edit("title", "You will be able to", "You can"), "able to do"),
    (template.opening, without("times"), "reading and the running time"),
    (template.opening, edit("times", "running", "costing"), "reading and the running time"),
    (template.one_of_each, move_to_end("machine"), "not the set-up and the machine cell"),
    (template.one_of_each, without("machine"), "0 cells are tagged machine"),
    (template.one_of_each, meta("run", tags=["setup"]), "2 cells are tagged setup"),
    (template.one_of_each, change("machine", source="x = 1"), "does not call show.machine"),
    (template.setup_without_guard, edit("setup", "except ModuleNotFoundError", "except ImportError"), "lacks 'except"),
    (template.setup_without_guard, edit("setup", "show.quiet_errors()", ""), "lacks 'quiet_errors()'"),
    (template.ingredients, without("predict"), "no prediction"),
    (template.ingredients, change("predict", source="| symbol | code |"), "no prompt to guess"),
    (template.ingredients, edit("predict", "symbol", "letter"), "no table of symbols"),
    (template.ingredients, without("claim"), "no claim"),
    (template.ingredients, without("figure"), "no figure"),
    (template.ingredients, without("takeaway"), "no **Takeaway**"),
    (template.ingredients, without("broken"), "no cell that breaks something"),
    (template.ingredients, without("stub"), "no exercise"),
    (template.ending, without("summary"), "no heading 'Summary'"),
    (template.ending, edit("leaves-out", "## What this leaves out", "## Limits"), "no heading 'What this leaves out'"),
    (template.ending, move_to_end("summary"), "not in the order"),
    (template.ending, edit("sources", ", Section 3.1", ""), "does not say which table or section"),
    (template.ending, change("sources", source="## Sources\n\nNext: x"), "Sources lists nothing"),
    (template.ending, edit("sources", "Next:", "Then:"), "does not lead to what comes next"),
    (template.exercise_parts, without("check"), "no cell tagged 'check'"),
    (template.exercise_parts, without("solution"), "no cell tagged 'solution'"),
    (template.exercise_parts, change("stub", source="my_gib = 4"), "only assignments such as"),
    (template.exercise_parts, change("stub", source="print(3)"), "must begin with an assignment"),
    (template.exercise_parts, lambda n: cell(n, "stub")["metadata"].pop("wrong_answers"), "lists no wrong answers"),
    (template.exercise_parts, change("check", source="assert my_gib"), "does not call show.check"),
    (template.exercise_parts, edit("solution", "<details>", ""), "is to fold the solution"),
    (template.exercise_parts, edit("solution", "</summary>\n\n", "</summary>\n"), "is to fold the solution"),
    (template.exercise_parts, edit("solution", "```python", "```"), "no ```python block"),
    (template.exercise_parts, edit("ask", "Hint", "Help"), "has no hint"),
]  # fmt: skip


def case_name(value: Any) -> str:
    name = value if isinstance(value, str) else value.__name__
    return "" if name in ("plant", "<lambda>") else name


@pytest.mark.parametrize("check", FILE_CHECKS, ids=case_name)
def test_a_good_lesson_passes(check: Check) -> None:
    assert check(sample_lesson()) == []


@pytest.mark.parametrize(("check", "fault", "problem"), FILE_FAULTS, ids=case_name)
def test_a_planted_fault_is_found(check: Check, fault: Fault, problem: str) -> None:
    notebook = sample_lesson()
    fault(notebook)
    assert any(problem in found for found in check(notebook)), check(notebook)


def test_every_check_has_a_planted_fault() -> None:
    assert {check for check, _, _ in FILE_FAULTS} == set(FILE_CHECKS)
    assert {check for check, _, _ in RUN_FAULTS} == set(RUN_CHECKS)


def test_setups_may_differ_in_imports_only() -> None:
    other, worse = sample_lesson(), sample_lesson()
    edit("setup", "import show, units", "import show")(other)
    append("setup", "\nx = 1")(worse)
    assert template.different_setups({"01": sample_lesson(), "02": other}) == []
    found = template.different_setups({"01": sample_lesson(), "02": other, "03": worse})
    assert found == ["the set-up of 03 differs from that of 01"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Notebook, Notebook]:
    """The sample as it ran, and its second run with solutions and wrong answers."""
    project = Project(tmp_path_factory.mktemp("book"))
    path = project.notebooks / "01_sample.ipynb"
    path.parent.mkdir()
    nbformat.write(nbformat.from_dict(sample_lesson()), path)
    for solutions in (False, True):
        run_lessons(project, [path], solutions=solutions, say=lambda line: None)
    plain, solved = (
        store.read_notebook(store.executed_path(project, path.stem, variant))
        for variant in (store.PLAIN, store.SOLUTIONS)
    )
    return plain, solved


def output(notebook: Notebook, cell_id: str) -> Any:
    return cell(notebook, cell_id)["outputs"][0]


def record(cell_id: str, mime: str, **entries: Any) -> Fault:
    return lambda notebook: output(notebook, cell_id)["data"][mime].update(entries)


def shows(cell_id: str, **data: Any) -> Fault:
    named = {key.replace("_", "/", 1): value for key, value in data.items()}
    new = {"output_type": "display_data", "metadata": {}, "data": named}
    return lambda notebook: cell(notebook, cell_id)["outputs"].append(new)


def prints(cell_id: str, text: str, name: str = "stdout") -> Fault:
    new = {"output_type": "stream", "name": name, "text": text}
    return lambda notebook: cell(notebook, cell_id)["outputs"].append(new)


def widget(html: str = "") -> Fault:
    def plant(notebook: Notebook) -> None:
        shows("run", text_plain="x", **({"text_html": html} if html else {}))(notebook)
        cell(notebook, "run")["outputs"][-1]["data"][WIDGET_MIME] = {"model_id": "x"}

    return plant


OWN_WIDGET = show.NumberFormatExplorer().html()


def twin_claim(notebook: Notebook) -> None:
    cell(notebook, "claim")["outputs"] *= 2


RUN_FAULTS: list[tuple[Check, Fault, str]] = [
    (executed.claims, record("claim", CLAIM_MIME, verdict="broken"), "is broken"),
    (executed.claims, twin_claim, "is made twice"),
    (executed.claims, change("claim", outputs=[]), "no claim was made"),
    (executed.claims, change("machine", outputs=[]), "before the machine is shown"),
    (executed.failures, prints("run", "UserWarning: x", "stderr"), "wrote to stderr: 'UserWarning: x'"),
    (
        executed.failures,
        change("run", outputs=[{"output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": []}]),
        "ended in KeyError",
    ),
    (executed.stubs, record("check", EXERCISE_MIME, verdict="wrong"), "is wrong on its stub"),
    (executed.stubs, change("check", outputs=[]), "no exercise was checked"),
    (executed.outputs_for_everyone, shows("run", text_plain="x", image_png="x"), "a picture that show did not draw"),
    (executed.outputs_for_everyone, shows("run", text_plain="x", text_html="<table></table>"), "without a caption"),
    (executed.outputs_for_everyone, shows("run", text_plain="x", text_html="<svg></svg>"), "without a description"),
    (executed.outputs_for_everyone, widget(), "a widget"),
    (executed.outputs_for_everyone, widget("<table><caption>x</caption></table>"), "a widget"),
    (executed.outputs_for_everyone, widget(OWN_WIDGET.replace("<table", "<p")), "a widget"),
    (executed.outputs_for_everyone, widget(OWN_WIDGET.replace("state=", "title=")), "a widget"),
    (executed.outputs_for_everyone, shows("run", text_html="x"), "no plain text"),
    (unproven_numbers, edit("prose-3", "9.6 GB", "9.7 GB"), "'9.7 GB' is in no code"),
    (unproven_numbers, edit("prose-3", "8.94 GiB", "8.940 GB"), "'8.940 GB'"),
    (unproven_numbers, edit("prose-2", "16\\,\\text{bytes}", "17\\,\\text{bytes}"), "17  bytes"),
    (unproven_numbers, append("summary", " Some 1.75 TB."), "'1.75 TB'"),
]  # fmt: skip


@pytest.mark.parametrize("check", RUN_CHECKS, ids=case_name)
def test_a_good_run_passes(runs: tuple[Notebook, Notebook], check: Check) -> None:
    assert check(runs[0]) == []


@pytest.mark.parametrize(("check", "fault", "problem"), RUN_FAULTS, ids=case_name)
def test_a_fault_planted_in_a_run_is_found(
    runs: tuple[Notebook, Notebook], check: Check, fault: Fault, problem: str
) -> None:
    notebook = copy.deepcopy(runs[0])
    fault(notebook)
    assert any(problem in found for found in check(notebook)), check(notebook)


def test_a_widget_of_the_book_is_for_everyone(runs: tuple[Notebook, Notebook]) -> None:
    notebook = copy.deepcopy(runs[0])
    widget(OWN_WIDGET)(notebook)
    assert executed.outputs_for_everyone(notebook) == []


def test_solutions_pass_and_wrong_answers_are_refused(runs: tuple[Notebook, Notebook]) -> None:
    assert exercise_problems(runs[1]) == []
    too_kind = copy.deepcopy(runs[1])
    for one in too_kind["cells"]:
        for shown in one.get("outputs", []):
            if EXERCISE_MIME in shown.get("data", {}):
                shown["data"][EXERCISE_MIME]["verdict"] = "right"
    assert len(exercise_problems(too_kind)) == 3


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (["notebooks/01_a", "notebooks/02_b"], ""),
        (["notebooks/01_a"], "notebooks/02_b is not in the table of contents"),
        (["notebooks/02_b", "notebooks/01_a"], "not in the order"),
        (["notebooks/01_a", "notebooks/02_b", "notebooks/03_c"], "notebooks/03_c has no file"),
        (["notebooks/01_a", "notebooks/01_a", "notebooks/02_b"], "notebooks/01_a is named twice"),
    ],
)
def test_the_table_of_contents_is_checked(tmp_path: Path, entries: list[str], problem: str) -> None:
    for file in ("book/index.md", "notebooks/01_a.ipynb", "notebooks/02_b.ipynb"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    toc = {"root": "book/index", "parts": [{"chapters": [{"file": entry} for entry in entries]}]}
    found = contents(toc, tmp_path)
    assert any(problem in one for one in found) if problem else found == []


def test_a_lessons_name_begins_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "Lesson.ipynb").touch()
    toc = {"chapters": [{"file": "notebooks/Lesson"}]}
    assert contents(toc, tmp_path) == ["notebooks/Lesson is not called NN_name"]
