"""How anything of `show` reaches a reader: as HTML in a notebook, as text anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


def running_shell() -> Any | None:
    """The IPython shell that runs this code, or None in plain Python."""
    try:
        from IPython import get_ipython  # type: ignore[attr-defined]
    except ImportError:
        return None
    return get_ipython()  # type: ignore[no-untyped-call]


def is_notebook() -> bool:
    """Whether this code runs in a Jupyter kernel, where HTML is shown."""
    return hasattr(running_shell(), "kernel")


@dataclass(eq=False)
class Shown:
    """Something that a function of `show` has displayed, kept to be used afterwards.

    As the last line of a cell it is not displayed a second time; in a later cell its name displays it again,
    without the record that it left in the notebook the first time.

    Attributes:
        html: what a notebook or page shows.
        text: the same for a terminal, a log or a reader of the notebook's file.
    """

    html: str = field(repr=False)
    text: str = field(repr=False)
    _shown_at: int | None = field(default=None, init=False, repr=False)

    def _records(self) -> Mapping[str, Any]:
        """MIME type to JSON: what an executed notebook keeps as evidence."""
        return {}

    def _emit(self) -> Self:
        """Displays it, with its records, and remembers in which cell."""
        self._display(self._records())
        shell = running_shell()
        self._shown_at = None if shell is None else shell.execution_count
        return self

    def _display(self, records: Mapping[str, Any]) -> None:
        if running_shell() is None:
            print(self.text)
            return
        from IPython.display import display

        display({"text/plain": self.text, "text/html": self.html, **records}, raw=True)  # type: ignore[no-untyped-call]

    def _ipython_display_(self) -> None:
        shell = running_shell()
        if shell is None or shell.execution_count != self._shown_at:
            self._display({})
