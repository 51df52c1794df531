"""Start several processes on this host with torchrun, from a notebook, and leave none of them behind."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwlessons.parallel import agent, reports, stacks, worker
from hwlessons.parallel.backends import missing_backend
from hwlessons.parallel.errors import LINE_OF_RANK, LaunchError, describe
from hwlessons.parallel.orphans import MARKER, kill_marked
from hwlessons.parallel.targets import Target, python_arguments, script_name

LOOPBACK = {"linux": "lo", "darwin": "lo0"}


@dataclass(frozen=True)
class LaunchResult:
    """A launch that succeeded.

    Attributes:
        command: the same in a shell.
        results: what each rank reported, by rank.
        output: the lines that the ranks printed.
        seconds: from the start of the first process to the end of the last.
    """

    command: str
    results: tuple[Any, ...]
    output: tuple[str, ...]
    seconds: float


def launch(
    target: Target,
    arguments: Sequence[object] = (),
    *,
    num_processes: int,
    timeout_seconds: float = 300.0,
    backend: str = "gloo",
    num_threads: int = 1,
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> LaunchResult:
    """Run `target` in `num_processes` processes under torchrun and return what each rank reported.

    Every line that a rank prints appears at once, with its rank before it. All processes have ended when this
    returns or raises, and they end with this process, even if it is killed.

    Args:
        target: a module that can run as `python -m`, the path of a script, or a function whose source can be read (it
            is written to a script, so it must import what it uses; its return value is its report).
        arguments: what follows on the command line; a function gets them as strings.
        num_processes: ranks, all on this host.
        timeout_seconds: after this everything is ended; a busy machine may need 20 s to start the processes.
        backend: what the ranks will use, so that a missing one is noticed before anything starts.
        num_threads: threads of each rank (OMP_NUM_THREADS).
        port: where the ranks meet; None takes a free one.
        environment: further variables for the ranks.
        quiet: print neither the command nor what the ranks print.

    Raises:
        ValueError: if a number is not positive or the target is none of the above.
        LaunchError: if the backend is missing, the port is taken, a rank fails, or the time is over.
    """
    if not num_processes >= 1 or not timeout_seconds > 0 or not num_threads >= 1:
        given = f"{num_processes}, {timeout_seconds} and {num_threads}"
        raise ValueError(f"num_processes, timeout_seconds and num_threads must be positive, got {given}")
    problem = missing_backend(backend, num_processes) or _taken(port)
    if problem:
        raise LaunchError(problem)
    with tempfile.TemporaryDirectory(prefix="hwlessons-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        tail = [*python_arguments(target, folder), *map(str, arguments)]
        meet = ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"] if port else ["--standalone"]
        torchrun = [*meet, f"--nproc-per-node={num_processes}"]
        command = shlex.join(["python", "-m", "torch.distributed.run", *torchrun, *tail])
        say = (lambda line: None) if quiet else print
        say(f"$ OMP_NUM_THREADS={num_threads} {command.replace(f'{folder}{os.sep}', '')}")
        own = ["--local-addr=127.0.0.1", "--tee=3", f"--log-dir={folder / 'logs'}", "-m", worker.__name__]
        start = time.perf_counter()
        script = script_name(tail)
        places: dict[int, str] = {}
        lines, ended = _run(
            [sys.executable, "-u", "-m", agent.__name__, *torchrun, *own, *tail],
            _environment(folder, num_threads, environment or {}),
            timeout_seconds,
            say,
            lambda: places.update(stacks.places(folder, script)),
        )
        seconds = time.perf_counter() - start
        results = reports.read_results(folder, num_processes)
        failures = reports.read_failures(folder, num_processes)
    if ended != 0:
        message = describe(ended, failures, results, places, lines, seconds)
        raise LaunchError(message, failures, results, tuple(lines))
    printed = tuple(line for line in lines if line.startswith(LINE_OF_RANK))
    return LaunchResult(command, results, printed, seconds)


def _run(
    command: list[str],
    environment: dict[str, str],
    timeout_seconds: float,
    say: Callable[[str], object],
    before_the_end: Callable[[], object],
) -> tuple[list[str], int | None]:
    """All lines of the agent and its workers, and its exit code (None: the time was over)."""
    lines: list[str] = []
    arriving: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    deadline = time.monotonic() + timeout_seconds
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,  # never written to: its end is the ranks' sign that this process has ended
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdin is not None
    reader = threading.Thread(target=_read_lines, args=(process.stdout, arriving), daemon=True)
    try:
        reader.start()
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                line = arriving.get(timeout=left)
                if line is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return lines, process.wait(max(left, 1.0))
                    break
                lines.append(line)
                if line.startswith(LINE_OF_RANK):
                    say(line)
        before_the_end()
        return lines, None
    finally:
        kill_marked(environment[MARKER])
        process.kill()
        process.wait()
        process.stdin.close()
        reader.join(5)
        if not reader.is_alive():  # closing would wait for it
            process.stdout.close()


def _read_lines(stream: Any, arriving: queue.SimpleQueue[str | None]) -> None:
    with contextlib.suppress(ValueError):  # closed under it
        for line in stream:
            arriving.put(line.rstrip("\n"))
    arriving.put(None)


def _environment(folder: Path, num_threads: int, more: Mapping[str, str]) -> dict[str, str]:
    package = str(Path(__file__).resolve().parents[2])
    own = {
        reports.FOLDER: str(folder),
        agent.PARENT: str(os.getpid()),
        MARKER: uuid.uuid4().hex,
        "OMP_NUM_THREADS": str(num_threads),
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": LINE_OF_RANK + "${rank}] ",
    }
    if sys.platform in LOOPBACK and "GLOO_SOCKET_IFNAME" not in os.environ:
        own["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]  # a laptop's own name need not resolve
    return {**os.environ, **own, **more}


def _taken(port: int | None) -> str | None:
    if port is None:
        return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return f"port {port} cannot be used ({error.strerror}); leave port out, and a free one is taken"
    return None
