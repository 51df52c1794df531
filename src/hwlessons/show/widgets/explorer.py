"""The number-format explorer: a number and its bits, in every format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from hwlessons.facts.formats import (
    FORMATS,
    Overflow,
    code_of_bits,
    decode,
    encode,
    find_format,
)
from hwlessons.facts.formats.codes import checked_number
from hwlessons.show.html import Grid
from hwlessons.show.widgets.numbers_as_text import COLUMNS, table_row, write_value
from hwlessons.show.widgets.scripts import NUMBER_FORMAT_EXPLORER, Script
from hwlessons.show.widgets.widget import Widget

ENTRIES = ("number", "format", "overflow", "bits")
OVERFLOWS = get_args(Overflow)


class NumberFormatExplorer(Widget):
    """Shows what a format stores for a number, bit by bit, and what all others make of it.

    Leave it last in a cell to show it. In JupyterLab its properties follow the reader, and setting them moves it.

    Args:
        value: the number to begin with, held as fp64.
        format: one of `facts.formats.FORMATS`.
        overflow: what a number beyond the largest becomes: "nonsaturating" (infinity, or NaN where a format has no
            infinity) or "saturate" (the largest).

    Raises:
        ValueError: if the value is no number or a NaN that the format cannot hold, or format or overflow are unknown.
    """

    script: ClassVar[Script] = NUMBER_FORMAT_EXPLORER

    def __init__(self, value: float = 0.1, format: str = "bf16", *, overflow: Overflow = "nonsaturating") -> None:
        super().__init__(state=_state(value, format, overflow))

    @property
    def value(self) -> float:
        """The number, before the format has rounded it."""
        return float(self.state["number"])

    @value.setter
    def value(self, value: float) -> None:
        self.state = _state(value, self.format, self.overflow)

    @property
    def format(self) -> str:
        """The name of the format."""
        return str(self.state["format"])

    @format.setter
    def format(self, name: str) -> None:
        self.state = _state(self.value, name, self.overflow)

    @property
    def overflow(self) -> Overflow:
        """What a number beyond the largest becomes: "nonsaturating" or "saturate"."""
        overflow: Overflow = self.state["overflow"]
        return overflow

    @overflow.setter
    def overflow(self, overflow: Overflow) -> None:
        self.state = _state(self.value, self.format, overflow)

    @property
    def bits(self) -> str:
        """The bits that are stored, highest first."""
        return str(self.state["bits"])

    @bits.setter
    def bits(self, bits: str) -> None:
        stored = decode(code_of_bits(bits, self.format), self.format)
        digits = bits.replace(" ", "").replace("_", "")
        self.state = {**self.state, "number": write_value(stored), "bits": digits}

    @property
    def code(self) -> int:
        """The bits as an integer."""
        return int(self.bits, 2)

    @property
    def stored(self) -> float:
        """The number that the format holds instead of `value`."""
        return decode(self.code, self.format)

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """See `Widget.checked`."""
        if set(state) != set(ENTRIES):
            has = ", ".join(map(str, state)) or "no entries"
            raise ValueError(f"the state has {has}; it must have {', '.join(ENTRIES)}")
        if state["overflow"] not in OVERFLOWS:
            raise ValueError(f"overflow must be {' or '.join(OVERFLOWS)}, got {state['overflow']!r}")
        code_of_bits(state["bits"], state["format"])
        float(state["number"])
        return dict(state)

    def grid(self) -> tuple[Grid, str]:
        """See `Widget.grid`."""
        rows = [table_row(self.value, fmt, self.overflow) for fmt in FORMATS.values()]
        beyond = "infinity or NaN" if self.overflow == "nonsaturating" else "the largest"
        caption = f"{self.state['number']} in every format; what is too large becomes {beyond} · computed"
        return Grid(COLUMNS, rows, [False, True, True, True, False]), caption

    def __repr__(self) -> str:
        number = self.state["number"]
        return f"NumberFormatExplorer({number}, {self.format!r}, overflow={self.overflow!r})"


def _state(value: float, format: str, overflow: Overflow) -> dict[str, Any]:
    fmt, number = find_format(format), checked_number(value)
    bits = f"{encode(number, fmt, overflow=overflow):0{fmt.bits}b}"
    return {"number": write_value(number), "format": fmt.name, "overflow": overflow, "bits": bits}
