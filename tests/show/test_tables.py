"""Tables: captions, headers with scope, numbers in full, and ragged rows refused."""

import re
from typing import Any

import pytest

from hwlessons import show
from hwlessons.units import format_bytes


def test_a_table_says_where_its_numbers_come_from(machine: dict[str, Any]) -> None:
    shown = show.table([{"recipe": "fp32", "bytes": 16}], caption="Bytes", kind="measured")
    assert "<caption" in shown.html
    assert "measured on Test CPU, torch 2.13.0" in shown.html
    assert shown.text.startswith("Bytes (measured on Test CPU, torch 2.13.0)\n")


def test_every_header_has_a_scope_and_a_name() -> None:
    shown = show.table([{"a": 1, "b": None}, {"a": 2, "b": "x < y"}], caption="C", kind="computed")
    headers = re.findall(r"<th ([^>]*)>([^<]*)</th>", shown.html)
    assert [text for _, text in headers] == ["a", "b", "1", "2"]
    assert [re.findall(r'scope="(\w+)"', attributes) for attributes, _ in headers] == [
        ["col"],
        ["col"],
        ["row"],
        ["row"],
    ]
    assert "x &lt; y" in shown.html


def test_numbers_are_aligned_and_written_in_full() -> None:
    rows = [("a", 6_738_415_616, 0.123456789), ("bb", 1, None)]
    shown = show.table(rows, columns=["n", "count", "x"], caption="C", kind="computed")
    assert shown.text.splitlines()[1:] == [
        "n           count         x",
        "──  ─────────────  ────────",
        "a   6,738,415,616  0.123457",
        "bb              1         —",
    ]
    assert shown.rows == tuple(rows)


def test_formats_are_functions_or_format_texts() -> None:
    shown = show.table(
        [("a", 2**30, 0.5)], columns=["n", "size", "x"], caption="C", kind="computed",
        formats={"size": format_bytes, "x": ".2f"},
    )  # fmt: skip
    assert shown.text.splitlines()[-1] == "a  1.00 GiB  0.50"


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "rows is empty"),
        ([(1, 2)], {}, "columns is missing"),
        ([(1, 2)], {"columns": ["a"]}, "row 1 has 2 values; the columns are a"),
        ([{"a": 1}, {"b": 2}], {}, "row 2 has b; the columns are a"),
        ([{"a": 1, "": 2}], {}, "empty name"),
        ([(1, 2)], {"columns": ["a", "a"]}, "twice"),
        ([{"a": 1}], {"formats": {"b": ".2f"}}, "formats names b"),
        ([{"a": 1}], {"kind": "felt"}, "kind='felt' is unknown"),
        ([{"a": 1}], {"kind": "measured"}, "depends on the machine"),
        ([{"a": float("nan")}], {}, "not finite"),
    ],
)
def test_what_is_refused(rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show.table(rows, **{"caption": "C", "kind": "computed", **options})


def test_a_machine_needs_its_facts() -> None:
    with pytest.raises(ValueError, match="lacks kernels, torch, python"):
        show.machine({"device": "cpu", "device_name": "x"})


def test_the_machines_facts_are_shown_and_kept(machine: dict[str, Any]) -> None:
    shown = show.machine({**machine, "driver": "570"})
    assert show.current_machine() == {**machine, "driver": "570"}
    assert shown._records() == {"application/vnd.hwlessons.machine+json": shown.facts}
    assert "8.00 GiB" in shown.text and "driver" in shown.text and "fp32, bf16" in shown.html
