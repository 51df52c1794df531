from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hwlessons.__main__ import main
from hwlessons.publish import evidence, kernel, runner
from hwlessons.publish.paths import Project, PublishError

# A GPU runner has these and what they bring; anything else that lessons or the runner import would be missing there.
RUNNER_LACKS = [
    "click", "tqdm", "grimp", "importlinter", "sphinx", "docutils", "myst_nb", "myst_parser", "jupyter_book",
    "jupyter_cache", "jupyterlab", "yaml", "pydantic", "nbconvert", "bs4", "rich",
]  # fmt: skip


@pytest.fixture
def inside(book: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The sample book as the current folder."""
    monkeypatch.chdir(book.notebooks)
    return book


def test_run_takes_a_lesson_and_its_solutions(inside: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "1"]) == 0
    assert main(["run", "--solutions"]) == 0
    assert "01_sample" in capsys.readouterr().out


def test_exercises_that_are_wrong_fail_the_second_run(
    inside: Project, capsys: pytest.CaptureFixture[str], edit: Callable[[Path, str, str], None]
) -> None:
    edit(inside.lessons()[0], "my_bytes = 4 * 2 * 8", "my_bytes = 4 * 2 * 9")
    assert main(["run", "--solutions"]) == 1
    assert "lesson 01_sample: cell 8 should be called right, the check says wrong" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "9"], "hwlessons: no lesson '9'; there are 01_sample"),
        (["evidence"], "hwlessons: no lesson has been run"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    inside: Project, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.strip() == said


@pytest.mark.parametrize("words", [[], ["walk"], ["run", "--quickly"]])
def test_words_that_make_no_sense_exit_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "usage: hwlessons" in capsys.readouterr().err


def test_outside_a_checkout_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["book"]) == 1
    assert "is not inside a checkout of the book" in capsys.readouterr().err


def test_a_failing_cell_ends_the_build_without_a_traceback(
    inside: Project, capsys: pytest.CaptureFixture[str], edit: Callable[[Path, str, str], None]
) -> None:
    edit(inside.lessons()[0], "measured=60", "measured=61")
    assert main(["book"]) == 1
    lines = capsys.readouterr().err.splitlines()
    lines = lines[next(n for n, line in enumerate(lines) if line.startswith("hwlessons:")) :]
    assert lines[0].startswith("hwlessons: lesson 01_sample failed in cell 4 (code cell 2, id claim)")
    assert lines[-1].startswith("ClaimError: 'bytes of the tensor' is broken")
    assert len(lines) < 6


def test_evidence_is_written_to_a_file(inside: Project, tmp_path: Path) -> None:
    main(["run"])
    assert main(["evidence", "--output", str(tmp_path / "out.json")]) == 0
    assert len(evidence.load(tmp_path / "out.json").claims) == 2


def _with_missing(names: list[str], folder: Path) -> dict[str, str]:
    """The environment of a Python in which packages are missing and ours is only on the path."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {names!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r} on this runner', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    path = os.pathsep.join([str(folder), str(kernel.PACKAGE_FOLDER.parent)])
    return {**os.environ, "PYTHONPATH": path, "HWLESSONS_DEVICE": "cpu"}


def test_a_runner_needs_nothing_but_its_list(book: Project, tmp_path: Path) -> None:
    environment = _with_missing(RUNNER_LACKS, tmp_path / "blocked")
    command = [sys.executable, "-m", "hwlessons", "gpu", "1"]
    done = subprocess.run(command, cwd=book.root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path_written,) = book.recorded_runs.glob("*.json")
    assert str(path_written) in done.stdout
    assert json.loads(path_written.read_text("utf-8"))["schema"] == evidence.SCHEMA
    assert not book.html.exists(), "no site is built"


def test_what_a_bare_runner_lacks_is_named_before_it_is_imported(book: Project, tmp_path: Path) -> None:
    environment = _with_missing([*runner.NEEDED, *RUNNER_LACKS, "packaging", "psutil"], tmp_path / "blocked")
    script = (
        "from importlib import metadata\n"
        "def version(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = version\n"
        "from hwlessons.__main__ import main\n"
        "raise SystemExit(main(['gpu']))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=book.root, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "this Python has no torch" in done.stderr


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"torch": None}, "this Python has no torch; name the Python that has it"),
        ({"nbclient": None, "anywidget": None}, "this Python lacks nbclient, anywidget; install them: "),
        ({"torch": "2.8.1+cu128"}, r"torch 2\.8\.1\+cu128 is too old for the lessons; they need torch 2\.9"),
    ],
)
def test_what_a_runner_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None], said: str
) -> None:
    def version(name: str) -> str:
        found = versions.get(name, "9.0")
        if found is None:
            raise runner.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(runner.metadata, "version", version)
    with pytest.raises(PublishError, match=said):
        runner.check_runner()
