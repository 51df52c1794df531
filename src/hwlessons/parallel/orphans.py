"""Find and end the processes of one launch by a mark in their environment, wherever they are in the process tree."""

from __future__ import annotations

import contextlib
import time

import psutil

MARKER = "HWLESSONS_LAUNCH"


def marked(value: str, variable: str = MARKER) -> list[psutil.Process]:
    """The living processes that were started with the environment variable `variable` set to `value`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(variable) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_marked(value: str, variable: str = MARKER, *, timeout_seconds: float = 5.0) -> None:
    """Kill every process of one launch, and look again until there is none."""
    deadline = time.monotonic() + timeout_seconds
    while processes := marked(value, variable):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=0.2)
        if time.monotonic() > deadline:
            return
