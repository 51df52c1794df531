"""Out of memory on purpose, in a child process that cannot harm this one and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hwlessons.lab import memory_limit
from hwlessons.lab.memory_limit import run_with_memory_limit

MIB = 2**20
linux_only = pytest.mark.skipif(not memory_limit.AVAILABLE, reason="a memory limit for a process needs Linux")


@linux_only
def test_out_of_memory_is_an_error_to_read():
    code = """
        kept = []
        for i in range(100):
            kept.append(torch.ones(25 * 2**20))
            print(f"{100 * (i + 1)} MiB")
    """
    run = run_with_memory_limit(code, headroom_bytes=512 * MIB)
    assert (run.outcome, run.error_type) == ("error", "RuntimeError")
    assert "you tried to allocate 104857600 bytes" in run.error_message
    assert run.output.split("\n")[-2] == "500 MiB"  # five of them fit into 512 MiB, and nothing warns before the sixth
    assert 500 * MIB <= run.peak_rss_bytes - run.start_rss_bytes <= 530 * MIB


def small_job():
    import math

    print(math.factorial(5))


@linux_only
def test_a_function_that_fits_finishes():
    run = run_with_memory_limit(small_job, headroom_bytes=256 * MIB)
    assert (run.outcome, run.error_type, run.error_message, run.output) == ("finished", "", "", "120\n")


@linux_only
@pytest.mark.parametrize(
    ("code", "outcome", "error_type"),
    [
        ("1 / 0", "error", "ZeroDivisionError"),
        ("raise SystemExit(3)", "error", "SystemExit"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("import os; os._exit(1)", "error", "NoReport"),
    ],
)
def test_other_ends(code, outcome, error_type):
    run = run_with_memory_limit(code, headroom_bytes=256 * MIB)
    assert (run.outcome, run.error_type) == (outcome, error_type)
    assert (run.peak_rss_bytes is None) == (error_type in ("SIGKILL", "NoReport"))


@linux_only
def test_what_was_printed_before_a_kill_is_kept(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = "import os, signal; print('forward'); os.kill(os.getpid(), signal.SIGKILL)"
    assert run_with_memory_limit(code, headroom_bytes=256 * MIB).output == "forward\n"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> bool:
    for _ in range(100):
        if not is_running(pid):
            return True
        time.sleep(0.05)
    return False


@linux_only
def test_a_run_without_end_is_stopped_with_its_children():
    code = """
        import subprocess, sys, os
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(os.getpid(), child.pid)
        child.wait()
    """
    run = run_with_memory_limit(code, headroom_bytes=256 * MIB, timeout_seconds=12)
    assert (run.outcome, run.error_type) == ("timed out", "")
    assert run.seconds < 17
    pids = [int(pid) for pid in run.output.split()]
    assert len(pids) == 2 and all(wait_until_gone(pid) for pid in pids)


@linux_only
def test_no_orphan_when_the_parent_is_killed(tmp_path):
    pid_file = tmp_path / "pid"
    inner = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    parent_code = textwrap.dedent(f"""
        from hwlessons.lab.memory_limit import run_with_memory_limit
        run_with_memory_limit({inner!r}, headroom_bytes=2**28, timeout_seconds=600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", parent_code])
    try:
        for _ in range(600):
            if pid_file.exists() and pid_file.read_text():
                break
            time.sleep(0.05)
        child = int(pid_file.read_text())
        assert is_running(child)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert wait_until_gone(child)


def test_elsewhere_it_says_so(monkeypatch):
    monkeypatch.setattr(memory_limit, "AVAILABLE", False)
    with pytest.raises(NotImplementedError, match=r"not available here .*; Linux has it"):
        run_with_memory_limit("1", headroom_bytes=1)


@linux_only
def test_bad_input():
    for numbers in ({"headroom_bytes": 0}, {"headroom_bytes": 1, "timeout_seconds": 0}):
        with pytest.raises(ValueError, match="headroom_bytes and timeout_seconds must be positive"):
            run_with_memory_limit("1", **numbers)
    with pytest.raises(ValueError, match="code must be Python source or a function whose source can be read"):
        run_with_memory_limit(print, headroom_bytes=1)
    job = lambda: None  # noqa: E731
    with pytest.raises(ValueError, match="a function made with def"):
        run_with_memory_limit(job, headroom_bytes=1)
