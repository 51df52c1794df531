"""Runs one notebook, cell by cell, and says in a few lines what went wrong if a cell fails."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from hwlessons.publish import kernel
from hwlessons.publish.paths import PublishError

CELL_TIMEOUT_SECONDS = 600
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class LessonFailed(PublishError):
    """A cell of a lesson raised; the message names the lesson, the cell and the error."""


@dataclass(frozen=True)
class Run:
    """One execution of a notebook: the notebook with outputs, what it took, and the memory its kernel peaked at."""

    notebook: Any
    seconds: float
    peak_memory_bytes: int


def run_notebook(notebook: Any, name: str, folder: Path, on_cell: Callable[[], None] = lambda: None) -> Run:
    """Runs a notebook in a kernel of the running interpreter.

    Args:
        notebook: The notebook; it is not changed.
        name: What to call it in messages.
        folder: The kernel's working folder.
        on_cell: Called after each cell.

    Raises:
        LessonFailed: A cell raised, ran too long, or the kernel died.
        KeyboardInterrupt: Interrupted or told to terminate; the kernel is gone by then.
    """
    return asyncio.run(_run(nbformat.from_dict(notebook), name, folder, on_cell))


async def _run(notebook: Any, name: str, folder: Path, on_cell: Callable[[], None]) -> Run:
    manager = kernel.kernel_manager()
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=CELL_TIMEOUT_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    client.owns_km = True
    pid, index, peak = None, 0, 0
    stopped = asyncio.Event()
    start = time.perf_counter()
    try:
        async with client.async_setup_kernel(env=kernel.kernel_environment()):
            pid = kernel.process_id(manager)
            _stop_on_signals(stopped, pid)
            for index, cell in enumerate(notebook.cells):
                await client.async_execute_cell(cell, index, execution_count=client.code_cells_executed + 1)
                peak = max(peak, kernel.peak_memory_bytes(pid))
                on_cell()
            seconds = time.perf_counter() - start
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except CellTimeoutError:
        raise LessonFailed(
            _report(name, notebook, index, f"still running after {CELL_TIMEOUT_SECONDS} seconds")
        ) from None
    except DeadKernelError:
        if stopped.is_set():
            raise KeyboardInterrupt from None
        raise LessonFailed(_report(name, notebook, index, "the kernel died (out of memory?)")) from None
    except CellExecutionError as error:
        raise LessonFailed(_report(name, notebook, index, f"{error.ename}: {error.evalue}")) from None
    finally:
        kernel.kill(pid)
    notebook.metadata["language_info"] = {"name": "python", "file_extension": ".py", "pygments_lexer": "ipython3"}
    return Run(notebook, seconds, peak)


def _stop_on_signals(stopped: asyncio.Event, pid: int | None) -> None:
    """Ends the run on Ctrl-C and on termination, where nbclient's own handlers would leave a cell waiting.

    nbclient turns the cancellation of a cell into a dead kernel, hence `stopped` to tell the two apart.
    """
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        kernel.kill(pid)
        if task is not None:
            task.cancel()

    with contextlib.suppress(NotImplementedError, RuntimeError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)


def _report(name: str, notebook: Any, index: int, error: str) -> str:
    """Returns the few lines that a failing cell is reported in."""
    cell = notebook.cells[index]
    number = sum(c.cell_type == "code" for c in notebook.cells[: index + 1])
    failing_line = _failing_line(cell)
    source = [
        f"  {'>' if n == failing_line else ' '} {n:3d} | {line}"
        for n, line in enumerate(cell.source.splitlines(), start=1)
    ]
    heading = f"lesson {name} failed in cell {index + 1} (code cell {number}, id {cell.get('id', '?')}):"
    return "\n".join([heading, *source, _ANSI.sub("", error)])


def _failing_line(cell: Any) -> int | None:
    """Returns the line of the cell that raised, as its traceback names it."""
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            found = re.findall(r"Cell In\[\d+\], line (\d+)", _ANSI.sub("", "\n".join(output.traceback)))
            return int(found[0]) if found else None
    return None
