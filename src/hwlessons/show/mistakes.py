"""A reader's mistake in a notebook: one line that says what is allowed, instead of a wall of traceback."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from hwlessons.show.output import running_shell

_PACKAGE = __name__.partition(".")[0]


def quiet_errors() -> None:
    """From now on, a ValueError that this package raises shows its message and the cell's line, nothing else.

    Errors from anywhere else keep their traceback, and so does code outside a notebook.
    """
    shell = running_shell()
    if shell is not None:
        shell.set_custom_exc((ValueError,), _show)


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: Any = None
) -> None:
    frames = _frames(trace)
    if frames and frames[-1][0].partition(".")[0] == _PACKAGE:
        cells_line = next((line for module, line in reversed(frames) if module == "__main__"), None)
        place = f" (line {cells_line} of the cell)" if cells_line else ""
        error._render_traceback_ = lambda: [f"{kind.__name__}: {error}{place}"]  # type: ignore[attr-defined]
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def _frames(trace: TracebackType | None) -> list[tuple[str, int]]:
    frames = []
    while trace is not None:
        frames.append((str(trace.tb_frame.f_globals.get("__name__", "")), trace.tb_lineno))
        trace = trace.tb_next
    return frames
