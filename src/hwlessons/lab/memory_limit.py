"""Run Python code in a child process under a memory limit, to see what running out of memory looks like.

`RLIMIT_AS` bounds a process's address space, so that the allocation which goes too far fails at once, in Python, with
the framework's own message, and this process is not touched. Linux only.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

AVAILABLE = sys.platform == "linux"


@dataclass(frozen=True)
class LimitedRun:
    """How a run under a memory limit ended.

    Attributes:
        outcome: "finished", "error" (a Python exception), "killed" (by a signal) or "timed out".
        error_type: the exception's class, the signal's name if killed, "NoReport" if the child broke; "" otherwise.
        error_message: the exception's message.
        output: what the code printed until then.
        peak_rss_bytes: largest resident memory of the child, Python and torch included; None without a report.
        start_rss_bytes: its resident memory when the code began, after torch was imported; None without a report.
        seconds: from start to end of the child, the import of torch included.
    """

    outcome: str
    error_type: str
    error_message: str
    output: str
    peak_rss_bytes: int | None
    start_rss_bytes: int | None
    seconds: float


def run_with_memory_limit(
    code: str | Callable[[], object], *, headroom_bytes: int, timeout_seconds: float = 60.0
) -> LimitedRun:
    """Run `code` in a fresh process that may map `headroom_bytes` more than it has after importing torch.

    Args:
        code: Python source, or a function without arguments whose source can be read (it is written out and called, so
            it must import what it uses). `torch` is imported already. It runs on one thread: each further thread
            maps memory of its own.
        headroom_bytes: how much address space the code may add; every tensor and every temporary counts.
        timeout_seconds: after this the child is killed.

    Raises:
        ValueError: if a number is not positive or the code is neither source nor a readable function.
        NotImplementedError: on systems other than Linux, which have no such limit.
    """
    if not AVAILABLE:
        raise NotImplementedError(f"a memory limit for a process is not available here ({sys.platform}); Linux has it")
    if not headroom_bytes > 0 or not timeout_seconds > 0:
        given = f"{headroom_bytes} and {timeout_seconds}"
        raise ValueError(f"headroom_bytes and timeout_seconds must be positive, got {given}")
    source = _source_of(code)
    # One thread and one malloc arena: each further one maps tens of MiB that are not the code's own.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    environment["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "hwlessons.lab.memory_limit"]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        request, report, output = Path(folder, "request"), Path(folder, "report"), Path(folder, "output")
        request.write_text(json.dumps([source, int(headroom_bytes), os.getpid()]))
        with output.open("wb") as sink:
            child = subprocess.Popen(
                [*command, str(request), str(report)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                child.wait(timeout_seconds)
                timed_out = False
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        facts = json.loads(report.read_text()) if report.exists() else {}
        printed = output.read_text("utf8", errors="replace")
    if timed_out:
        outcome, error_type = "timed out", ""
    elif child.returncode < 0:
        outcome, error_type = "killed", signal.Signals(-child.returncode).name
    else:
        error_type = facts.get("error_type", "NoReport" if child.returncode or not facts else "")
        outcome = "error" if error_type else "finished"
    return LimitedRun(
        outcome=outcome,
        error_type=error_type,
        error_message=facts.get("error_message", ""),
        output=printed,
        peak_rss_bytes=facts.get("peak_rss_bytes"),
        start_rss_bytes=facts.get("start_rss_bytes"),
        seconds=time.perf_counter() - start,
    )


def _source_of(code: str | Callable[[], object]) -> str:
    if isinstance(code, str):
        return textwrap.dedent(code)
    try:
        source = textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError):
        raise ValueError(f"code must be Python source or a function whose source can be read, got {code!r}") from None
    if not source.startswith("def "):
        raise ValueError(f"code must be Python source or a function made with def, got {source.splitlines()[0]!r}")
    return f"{source}\n{code.__name__}()\n"


def _child(request: str, report: str) -> None:
    import ctypes
    import resource

    source, headroom_bytes, parent = json.loads(Path(request).read_text())
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the parent, however it ends
    if os.getppid() != parent:
        return
    import torch

    torch.set_num_threads(1)
    facts: dict[str, object] = {"start_rss_bytes": _status_bytes("VmRSS")}
    limit = _status_bytes("VmSize") + headroom_bytes
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, unlimited[1]))
    try:
        exec(compile(source, "<code under a memory limit>", "exec"), {"torch": torch, "__name__": "__main__"})
    except BaseException as error:
        facts |= {"error_type": type(error).__name__, "error_message": str(error)}
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    facts["peak_rss_bytes"] = _status_bytes("VmHWM")
    Path(report).write_text(json.dumps(facts))


def _status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    _child(*sys.argv[1:])
