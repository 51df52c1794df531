"""Tables that carry where their numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from numbers import Real
from typing import Any

from hwlessons.show.html import Grid, where_html
from hwlessons.show.machine import provenance
from hwlessons.show.numbers import plain_number, write_number
from hwlessons.show.output import Shown

Format = Callable[[Any], str] | str
MISSING = "—"


@dataclass(eq=False)
class TableView(Shown):
    """A table, as shown.

    Attributes:
        columns: column names.
        rows: the values before they were written as text.
    """

    columns: tuple[str, ...] = field(kw_only=True)
    rows: tuple[tuple[Any, ...], ...] = field(kw_only=True, repr=False)


def table(
    rows: Sequence[Mapping[str, Any]] | Sequence[Sequence[Any]],
    *,
    caption: str,
    kind: str,
    columns: Sequence[str] | None = None,
    formats: Mapping[str, Format] | None = None,
    on: Mapping[str, Any] | None = None,
) -> TableView:
    """Shows a table whose caption says where its numbers come from; the first column names the rows.

    Args:
        rows: mappings from column name to value, or sequences in the order of `columns`. Whole numbers are written in
            full, other numbers with six significant digits, None as a dash.
        caption: what the table shows.
        kind: "computed", "traced", "simulated", "measured" or "recorded".
        columns: column names with their unit, in order; by default the first mapping's keys.
        formats: for a column, a function such as `units.format_bytes` or a format such as ".2f".
        on: the machine's facts, for recorded numbers; by default the registered machine.

    Raises:
        ValueError: if there are no rows, a row does not fit the columns, a column name is empty or occurs twice, a
            format names no column, or the kind needs a machine and none is registered.
    """
    names = _column_names(rows, columns)
    values = tuple(_row_values(row, names, number) for number, row in enumerate(rows, start=1))
    unknown = sorted(set(formats or {}) - set(names))
    if unknown:
        raise ValueError(f"formats names {', '.join(unknown)}; the columns are {', '.join(names)}")
    styles = [(formats or {}).get(name) for name in names]
    written = [[_write(value, style) for value, style in zip(row, styles, strict=True)] for row in values]
    numeric = [any(_is_number(row[i]) for row in values) for i in range(len(names))]
    grid = Grid(names, written, numeric)
    where = provenance(kind, on)
    html = grid.html(f"{escape(caption)} {where_html(where)}", caption)
    return TableView(html, grid.text(f"{caption} ({where})"), columns=names, rows=values)._emit()


def _column_names(rows: Sequence[Any], columns: Sequence[str] | None) -> tuple[str, ...]:
    if not rows:
        raise ValueError("rows is empty; a table has at least one row")
    if columns is None and not isinstance(rows[0], Mapping):
        raise ValueError("columns is missing; rows that are sequences need column names")
    names = tuple(rows[0]) if columns is None else tuple(columns)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"columns={names!r} has an empty name; every column says what it holds")
    if len(set(names)) < len(names):
        raise ValueError(f"columns={names!r} names a column twice")
    return names


def _row_values(row: Any, names: tuple[str, ...], number: int) -> tuple[Any, ...]:
    fits = set(row) == set(names) if isinstance(row, Mapping) else len(row) == len(names)
    if not fits:
        has = ", ".join(row) if isinstance(row, Mapping) else f"{len(row)} values"
        raise ValueError(f"row {number} has {has}; the columns are {', '.join(names)}")
    return tuple(row[name] for name in names) if isinstance(row, Mapping) else tuple(row)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _write(value: Any, style: Format | None) -> str:
    if value is None:
        return MISSING
    if isinstance(style, str):
        return format(value, style)
    if style is not None:
        return style(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return write_number(plain_number(value, "a table's value")) if _is_number(value) else str(value)
