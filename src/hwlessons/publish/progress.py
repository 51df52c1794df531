"""One bar over all cells that will run, named after the lesson that is running."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """A progress bar on a terminal; a line for each lesson where there is no terminal or no tqdm."""

    def __init__(self, num_cells: int) -> None:
        self._num_cells = num_cells
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._num_cells and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:  # a GPU runner need not have it
                return self
            self._bar = tqdm(total=self._num_cells, unit="cell", leave=False, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, name: str) -> None:
        """Names the lesson that runs from here on."""
        if self._bar is None:
            print(f"running lesson {name} …", file=sys.stderr, flush=True)
        else:
            self._bar.set_description(name)

    def advance(self) -> None:
        """Counts one cell as done."""
        if self._bar is not None:
            self._bar.update()
