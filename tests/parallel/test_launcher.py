"""Launches end as they should: with results, or with one clear line, and never with a process left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hwlessons.parallel import backends, launcher
from hwlessons.parallel.launcher import LaunchError, launch
from hwlessons.parallel.orphans import MARKER, kill_marked, marked
from hwlessons.parallel.reports import report

MINE = "HWLESSONS_TEST"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The mark of the processes of one test, all of which have ended when the test has."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MINE, value)
    yield value
    left = [" ".join(process.cmdline()) for process in marked(value, MINE)]
    kill_marked(value, MINE)
    assert left == []


def says(first: str, second: str) -> dict[str, object]:
    import os
    import sys

    print("to stdout")
    print("to stderr", file=sys.stderr)
    return {"rank": int(os.environ["RANK"]), "arguments": [first, second], "threads": os.environ["OMP_NUM_THREADS"]}


def test_results_and_output_of_every_rank(mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = launch(says, ["a b", 7], num_processes=2)
    assert done.results == tuple({"rank": rank, "arguments": ["a b", "7"], "threads": "1"} for rank in (0, 1))
    everything = sorted(f"[rank {rank}] to {stream}" for rank in (0, 1) for stream in ("stderr", "stdout"))
    assert sorted(done.output) == everything
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == (
        "$ OMP_NUM_THREADS=1 python -m torch.distributed.run --standalone --nproc-per-node=2 says.py 'a b' 7"
    )
    assert sorted(shown[1:]) == everything
    assert done.seconds > 0


def aborts_at_the_end() -> str:
    import atexit
    import ctypes

    library = ctypes.CDLL(None)
    library.__cxa_atexit(library.abort, None, None)  # as the threads of a process group that was not destroyed may do
    atexit.register(print, "handlers have run")
    return "done"


@pytest.mark.skipif(sys.platform == "win32", reason="has no __cxa_atexit")
def test_what_a_rank_leaves_behind_does_not_spoil_its_end(mark: str) -> None:
    done = launch(aborts_at_the_end, num_processes=1, quiet=True)
    assert (done.results, done.output) == (("done",), ("[rank 0] handlers have run",))


def fails() -> None:
    import os
    import signal
    import time

    if os.environ["RANK"] == "1":
        if os.environ["HOW"] == "raise":
            raise ValueError("row 7 is empty")
        if os.environ["HOW"] == "exit":
            raise SystemExit("rank 1 has no data")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "ValueError: row 7 is empty at fails.py:8"),
        ("exit", "rank 1 has no data"),
        ("kill", "the process was killed by SIGKILL"),
    ],
)
def test_the_failing_rank_comes_first(mark: str, how: str, error: str) -> None:
    with pytest.raises(LaunchError) as caught:
        launch(fails, num_processes=2, environment={"HOW": how}, quiet=True)
    message = str(caught.value)
    assert re.fullmatch(rf"rank 1 of 2: {re.escape(error)} \(after [\d.]+ s; all processes have ended\)", message)
    assert caught.value._render_traceback_() == [f"LaunchError: {message}"]
    assert caught.value.failures[0].rank == 1
    assert ("fails.py" in caught.value.failures[0].traceback) == (how != "kill")
    assert marked(mark, MINE) == []


def stays(here: str) -> str:
    import os
    import time
    from pathlib import Path

    if os.environ["RANK"] == "0":
        return "done"
    while not Path(os.environ["HWLESSONS_REPORTS"], "result0.json").exists():
        time.sleep(0.05)
    Path(here).touch()
    print("still here")
    time.sleep(600)


def test_the_time_limit(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clock() -> float:  # leaps over the limit when everything is where it should be
        return time.monotonic() + 1000.0 * (tmp_path / "here").exists()

    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=clock, perf_counter=time.perf_counter))
    with pytest.raises(LaunchError, match=r"time limit reached, no report from rank 1 at stays.py:1[12] \(") as caught:
        launch(stays, [tmp_path / "here"], num_processes=2, timeout_seconds=500, quiet=True)
    assert caught.value.results == ("done", None)
    assert marked(mark, MINE) == []


def test_a_process_that_closes_its_output_and_stays() -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(600)"
    environment = {**os.environ, MARKER: uuid.uuid4().hex}
    assert launcher._run([sys.executable, "-c", code], environment, 3.0, print, lambda: None) == ([], None)


def waits() -> None:
    import time

    time.sleep(600)


def _wait_for(mark: str, num_processes: int) -> None:
    deadline = time.monotonic() + 300
    while len(marked(mark, MINE)) < num_processes and time.monotonic() < deadline:
        time.sleep(0.05)


def test_an_interrupt(mark: str) -> None:
    sent = []

    def interrupt_when_running() -> None:
        _wait_for(mark, 3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_running, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        launch(waits, num_processes=2, quiet=True)
    assert time.monotonic() - sent[0] < 100  # not what the ranks would have slept
    assert marked(mark, MINE) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("lifeline", ["kernel", "pipe"])
def test_the_launching_process_is_killed(mark: str, lifeline: str, tmp_path: Path) -> None:
    if lifeline == "kernel" and sys.platform != "linux":
        pytest.skip("PR_SET_PDEATHSIG is Linux's")
    script = tmp_path / "waits.py"
    script.write_text(
        "import os, pathlib, time\npathlib.Path(__file__ + os.environ['RANK']).touch()\ntime.sleep(600)\n"
    )
    code = (
        f"from hwlessons.parallel.launcher import launch\nlaunch({str(script)!r}, num_processes=2, timeout_seconds=500)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "HWLESSONS_LIFELINE": lifeline})
    try:
        _wait_for(mark, 4)
        deadline = time.monotonic() + 300
        while len(list(tmp_path.glob("waits.py?"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(marked(mark, MINE)) >= 4
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 60
    while marked(mark, MINE) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark, MINE) == []


@pytest.mark.skipif(sys.platform == "win32", reason="a kernel there ends in another way")
@pytest.mark.parametrize("now", [True, False], ids=["restarted at once", "asked to end first"])
def test_a_kernel_is_restarted(mark: str, now: bool, tmp_path: Path) -> None:
    from jupyter_client.manager import KernelManager

    def ranks() -> list[str]:
        lines = [" ".join(process.cmdline()) for process in marked(mark, MINE)]
        return [line for line in lines if "hwlessons.parallel" in line]

    script = tmp_path / "waits.py"
    script.write_text(
        "import os, pathlib, time\npathlib.Path(__file__ + os.environ['RANK']).touch()\ntime.sleep(600)\n"
    )
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=120)
        client.execute(
            f"from hwlessons.parallel.launcher import launch\n"
            f"launch({str(script)!r}, num_processes=2, timeout_seconds=500)"
        )
        deadline = time.monotonic() + 300
        while len(list(tmp_path.glob("waits.py?"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(ranks()) >= 2
        manager.restart_kernel(now=now)
        deadline = time.monotonic() + 60
        while ranks() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ranks() == []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def diverges() -> None:
    import time
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")  # starting may take long
    group = dist.new_group(timeout=timedelta(seconds=5))
    dist.barrier()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1), group=group)
    time.sleep(600)


def test_ranks_that_make_different_collectives(mark: str) -> None:
    with pytest.raises(LaunchError, match=r"rank 0 of 2: RuntimeError: .*5000ms.* at diverges.py:12 — it waited in a"):
        launch(diverges, num_processes=2, quiet=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_processes": 0}, "must be positive, got 0, 300.0 and 1"),
        ({"timeout_seconds": 0}, "must be positive, got 2, 0 and 1"),
        ({"target": "no_such_file.py"}, "'no_such_file.py', which is no file"),
        ({"target": lambda: None}, "a function made with def"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        launch(**{"target": waits, "num_processes": 2} | options)


def test_a_port_in_use() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LaunchError, match=f"port {port} cannot be used .*; leave port out"):
            launch(waits, num_processes=2, port=port)


def test_backends_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends.missing_backend("gloo", 2) is None
    with pytest.raises(LaunchError, match="backend must be one of gloo, nccl, got 'mpi'"):
        launch(waits, num_processes=2, backend="mpi")
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: False)
    with pytest.raises(LaunchError, match="is built without gloo"):
        launch(waits, num_processes=2)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LaunchError, match="nccl needs one GPU for each of 2 processes, found 1"):
        launch(waits, num_processes=2, backend="nccl")
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert backends.missing_backend("gloo", 2) == "this torch is built without torch.distributed"


def test_a_report_outside_of_a_launch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWLESSONS_REPORTS", raising=False)
    report({"loss": 1.5})
    assert capsys.readouterr().out == '{"loss": 1.5}\n'
    with pytest.raises(ValueError, match="must be plain values for JSON, got Tensor"):
        report(torch.ones(1))


def test_a_launch_has_a_mark_of_its_own(tmp_path: object) -> None:
    environments = [launcher._environment(tmp_path, 1, {}) for _ in range(2)]
    assert environments[0][MARKER] != environments[1][MARKER]
