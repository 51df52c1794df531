from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hwlessons.publish import execute, kernel

Maker = Callable[..., dict[str, Any]]


def _text(notebook: Any, index: int = 0) -> str:
    return "".join(output.get("text", "") for output in notebook["cells"][index]["outputs"])


def test_outputs_seconds_and_peak_memory_come_back(notebook: Maker, tmp_path: Path) -> None:
    seen = []
    nb = notebook("block = bytearray(200 * 2**20)", "del block", "print(6 * 7)")
    ran = execute.run_notebook(nb, "sample", tmp_path, lambda: seen.append(1))
    assert _text(ran.notebook, 2) == "42\n"
    assert len(seen) == 3
    assert 0 < ran.seconds < 60
    assert 200 * 2**20 < ran.peak_memory_bytes < 600 * 2**20
    assert nb["cells"][2]["outputs"] == [], "the notebook given is left alone"


def test_the_kernel_is_this_python_whatever_the_user_registered(
    notebook: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    ran = execute.run_notebook(notebook("import sys; print(sys.executable)"), "sample", tmp_path)
    assert _text(ran.notebook).strip() == sys.executable


def test_the_kernel_imports_the_package_that_the_key_was_taken_of(
    notebook: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "hwlessons"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(kernel, "PACKAGE_FOLDER", package)
    ran = execute.run_notebook(notebook("import hwlessons; print(hwlessons.__file__)"), "sample", tmp_path)
    assert Path(_text(ran.notebook).strip()).parent == package


def test_a_failing_cell_is_named_with_its_line_and_error(notebook: Maker, tmp_path: Path) -> None:
    nb = notebook("x = 1", "y = 0\nx / y", "never = 1")
    with pytest.raises(execute.LessonFailed) as failed:
        execute.run_notebook(nb, "05_sample", tmp_path)
    assert str(failed.value).splitlines() == [
        "lesson 05_sample failed in cell 2 (code cell 2, id cell-2):",
        "      1 | y = 0",
        "  >   2 | x / y",
        "ZeroDivisionError: division by zero",
    ]


def test_a_cell_may_raise_where_its_tag_says_so(notebook: Maker, tmp_path: Path) -> None:
    nb = notebook("1 / 0", "print(2)", tags=["raises-exception"])
    assert _text(execute.run_notebook(nb, "sample", tmp_path).notebook, 1) == "2\n"


def test_a_dead_kernel_is_reported(notebook: Maker, tmp_path: Path) -> None:
    with pytest.raises(execute.LessonFailed, match=r"cell 1 .*\n.*\n.*kernel died"):
        execute.run_notebook(notebook("import os; os._exit(9)"), "sample", tmp_path)


def test_a_cell_that_never_ends_is_reported(notebook: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "CELL_TIMEOUT_SECONDS", 2)
    with pytest.raises(execute.LessonFailed, match="still running after 2 seconds"):
        execute.run_notebook(notebook("import time; time.sleep(60)"), "sample", tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="signals of this kind exist on POSIX only")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, number: int) -> None:
    marks = tmp_path / "pids"
    cell = (
        "import os, subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"pathlib.Path({str(marks)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(300)"
    )
    script = (
        "import sys, pathlib\nfrom hwlessons.publish import execute\n"
        f"cell = dict(cell_type='code', id='a', metadata={{}}, source={cell!r}, outputs=[], execution_count=None)\n"
        "nb = dict(cells=[cell], metadata={}, nbformat=4, nbformat_minor=5)\n"
        f"try: execute.run_notebook(nb, 'sample', pathlib.Path({str(tmp_path)!r}))\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        _wait(lambda: marks.exists() and len(marks.read_text().split()) == 2)
        pids = [int(pid) for pid in marks.read_text().split()]
        run.send_signal(number)
        _, said = run.communicate(timeout=20)
        assert run.returncode == 130, said
        _wait(lambda: not any(_alive(pid) for pid in pids), seconds=5)
    finally:
        run.kill()


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)
