"""What a failed launch says: the rank that failed first and its own error, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hwlessons.parallel.reports import Failure

LINE_OF_RANK = "[rank "  # how a line that a rank printed begins
_PLACE_IN_TORCH = re.compile(r"\[/\S+\.(?:cc|cpp|h):\d+\] ")  # where gloo's source lay when it was compiled


class LaunchError(RuntimeError):
    """A launch that failed; a notebook shows the message alone.

    Attributes:
        failures: the ranks that failed, the cause first.
        results: what each rank had reported, None where nothing.
        output: every line that was printed, torchrun's own included.
    """

    def __init__(
        self,
        message: str,
        failures: Sequence[Failure] = (),
        results: tuple[Any, ...] = (),
        output: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.failures, self.results, self.output = tuple(failures), results, output

    def _render_traceback_(self) -> list[str]:
        return [f"LaunchError: {self}"]


def describe(
    ended: int | None,
    failures: list[Failure],
    results: tuple[Any, ...],
    places: Mapping[int, str],
    lines: list[str],
    seconds: float,
) -> str:
    """One line about a launch that failed.

    Args:
        ended: torchrun's exit code, None if the time was over.
        failures: the ranks that failed, the cause first.
        results: what each rank reported.
        places: where each rank was when the time was over.
        lines: all that was printed.
        seconds: how long the launch took.
    """
    after = f"after {seconds:.1f} s; all processes have ended"
    if failures:
        first = failures[0]
        place = f" at {first.place}" if first.place else ""
        error = _PLACE_IN_TORCH.sub("", first.error)
        return f"rank {first.rank} of {len(results)}: {error}{place}{_hint(error)} ({after})"
    if ended is None:
        silent = [rank for rank, result in enumerate(results) if result is None]
        standing = ", ".join(f"{rank} at {places[rank]}" if rank in places else str(rank) for rank in silent)
        return f"time limit reached, no report from rank {standing or '(all had reported)'} ({after})"
    own = [line for line in lines if not line.startswith(LINE_OF_RANK) and line.strip()]
    return f"torchrun ended with exit code {ended}: {own[-1] if own else 'it printed nothing'} ({after})"


def _hint(error: str) -> str:
    if "Timed out waiting" in error or "Watchdog caught collective operation timeout" in error:
        return " — it waited in a collective that another rank did not make"
    if "Connection closed by peer" in error or "Connection reset by peer" in error:
        return " — another rank had ended while this one waited for it"
    return ""
