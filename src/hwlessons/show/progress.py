"""Progress of long work: live where somebody waits, silent where a book is built."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from hwlessons.show.output import is_notebook

T = TypeVar("T")


def is_build() -> bool:
    """Whether a build runs this code (HWLESSONS_BUILD=1): nobody watches, and the page would keep a frozen bar."""
    return os.environ.get("HWLESSONS_BUILD", "") not in ("", "0")


def progress(items: Iterable[T], label: str, *, total: int | None = None) -> Iterator[T]:
    """Yields the items and shows how far it is: a bar in a notebook, a line in a terminal, nothing in a build.

    Args:
        items: what to go through.
        label: what takes the time, in a few words.
        total: how many items there are, where `len(items)` does not say.
    """
    if is_build() or not (is_notebook() or sys.stderr.isatty()):
        yield from items
        return
    bar = _bar(items, label, total)
    try:
        yield from bar
    finally:
        bar.close()


def _bar(items: Iterable[Any], label: str, total: int | None) -> Any:
    from tqdm import tqdm

    if is_notebook():
        try:
            import ipywidgets  # noqa: F401
            from tqdm.notebook import tqdm as notebook_tqdm
        except ImportError:
            pass
        else:
            return notebook_tqdm(items, desc=label, total=total, leave=False)
    return tqdm(items, desc=label, total=total, leave=False)
