"""Where a rank is when the time is over: it writes its stack to a file on SIGUSR1 (not on Windows, which has none)."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path

from hwlessons.parallel.reports import FOLDER

AVAILABLE = hasattr(faulthandler, "register")
WAIT_SECONDS = 5.0  # a process that has ended does not answer
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in ')


def write_on_request() -> None:
    """In a rank: from now on, write the main thread's stack when asked."""
    if AVAILABLE:
        path = Path(os.environ[FOLDER], f"stack{os.environ['RANK']}.{os.getpid()}")
        faulthandler.register(signal.SIGUSR1, file=path.open("w"), all_threads=False)


def places(folder: Path, script: str) -> dict[int, str]:
    """Ask every living rank, and return file and line of `script` where it is, by rank."""
    files = list(folder.glob("stack*.*"))
    for path in files:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.suffix[1:]), signal.SIGUSR1)
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(path.stat().st_size for path in files) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1 if files else 0.0)  # for the last lines of the last one
    found = {}
    for path in files:
        frames = [match for match in _FRAME.finditer(path.read_text("utf8")) if Path(match["file"]).name == script]
        if frames:
            found[int(path.stem.removeprefix("stack"))] = f"{script}:{frames[0]['line']}"
    return found
