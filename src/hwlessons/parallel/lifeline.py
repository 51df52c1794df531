"""A process that does not outlive the one that started it, however that one ends.

On Linux the kernel kills it (PR_SET_PDEATHSIG). Elsewhere a thread watches standard input, which is a pipe whose other
end the launching process holds: its end closes the pipe, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

VARIABLE = "HWLESSONS_LIFELINE"  # "kernel" or "pipe"; unset: what this system has
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def hold(parent_pid: int) -> None:
    """From now on, this process and those that it started end when `parent_pid` does, or the launching process."""
    if os.environ.get(VARIABLE, "kernel" if sys.platform == "linux" else "pipe") == "kernel":
        import ctypes

        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it ended before the kernel was told
            os._exit(1)
    else:
        threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    kill_children()
    os._exit(1)


def kill_children() -> None:
    """Kill every process that this one started, and what those started."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
