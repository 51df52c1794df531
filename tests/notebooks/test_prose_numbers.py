"""Which numbers in prose need a proof, and what proves them."""

from typing import Any

import pytest
from lesson_checks.prose_numbers import unproven_numbers


def lesson(prose: str, *, code: str = "", printed: str = "", tags: list[str] | None = None) -> dict[str, Any]:
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    return {
        "cells": [
            {"cell_type": "code", "source": code, "outputs": outputs, "metadata": {}},
            {"cell_type": "markdown", "source": prose, "metadata": {"tags": tags or []}},
        ]
    }


@pytest.mark.parametrize(
    ("prose", "code", "printed"),
    [
        ("It takes 8.94 GiB.", "", "8.94 GiB"),
        ("It takes 9.6 GB.", "", "8.94 GiB (9.60 GB)"),
        ("It takes 8.9 GiB.", "", "8.94 GiB"),
        ("It takes 8.94 GiB.", "", "9600000000"),
        ("It takes 8.94 GiB.", "n = 9_600_000_000", ""),
        ("It takes 8.94 GiB.", "", '{"predicted": 9600000000, "unit": "B"}'),
        ("16 bytes each", "4 * 4 == 16", ""),
        ("a 4-byte number", "x = 4", ""),
        ("$4+4+4+4 = 16$ bytes", "x = 16", ""),
        ("600 M parameters and 600 million parameters", "n = 600_000_000", ""),
        ("7B parameters", "n = 6_738_415_616", ""),
        ("78 % less", "", "0.782"),
        ("78% less", "", "saved: 78.2 %"),
        ("8–16 B each", "x = 8, 16", ""),
        ("12 to 20 bytes", "x = [12, 20]", ""),
        ("3.4 ms", "", "0.00341 s"),
        ("1.6e9 bytes", "x = 1.62e9", ""),
        ("312 TFLOP/s", "peak = 312e12", ""),
        ("6,738,415,616 parameters", "n = 6738415616", ""),
        # nothing to prove
        ("the 7B model, in 2024, on two cores, Table 3, Section 3.1", "", ""),
        ("`x = 99 GB` and\n\n```python\n98 GB\n```\n", "", ""),
        ("[the 80](http://x/97) steps, 3 steps, GPT-2 small", "", ""),
    ],
)
def test_what_is_proven(prose: str, code: str, printed: str) -> None:
    assert unproven_numbers(lesson(prose, code=code, printed=printed)) == []


@pytest.mark.parametrize(
    ("prose", "code", "printed", "number"),
    [
        ("It takes 8.95 GiB.", "", "8.94 GiB", "8.95 GiB"),
        ("It takes 8.94 GB.", "", "8.94 GiB", "8.94 GB"),
        ("It takes 8.94 s.", "", "8.94 GiB", "8.94 s"),
        ("17 bytes each", "16", "", "17 bytes"),
        ("a 3-byte number", "4", "", "3-byte"),
        ("$17$ bytes", "16", "", "17 bytes"),
        (r"$17\,\mathrm{GiB}$", "16", "", "17  GiB"),
        ("601 M parameters", "600_000_000", "", "601 M parameters"),
        ("79 % less", "", "0.782", "79 %"),
        ("8–17 B each", "8, 16", "", "17 B"),
        ("9–16 B each", "8, 16", "", "9 B"),
        ("**17 bytes**", "16", "", "17 bytes"),
        ("| 17 GiB |", "16", "", "17 GiB"),
        ("3.5 ms", "", "0.00341 s", "3.5 ms"),
        ("313 TFLOP/s", "312e12", "", "313 TFLOP/s"),
        ("312 TFLOP/s", "", "312 TFLOP", "312 TFLOP/s"),
        ("50 tokens", "", "51", "50 tokens"),
    ],
)
def test_what_is_not(prose: str, code: str, printed: str, number: str) -> None:
    assert unproven_numbers(lesson(prose, code=code, printed=printed)) == [
        f"cell 2: {number!r} is in no code or output above"
    ]


@pytest.mark.parametrize("tag", ["time", "predict"])
def test_prompts_and_times_are_exempt(tag: str) -> None:
    assert unproven_numbers(lesson("17 GB in 5 min", tags=[tag])) == []


def test_a_solutions_own_block_proves_its_words() -> None:
    text = "17 GB\n\n```python\nx = 17e9\n```\n"
    assert unproven_numbers(lesson(text, tags=["solution"])) == []
    assert unproven_numbers(lesson(text)) != []


def test_only_what_stands_above_proves() -> None:
    notebook = lesson("17 GB", code="x = 17e9")
    assert unproven_numbers(notebook) == []
    notebook["cells"].reverse()
    assert unproven_numbers(notebook) == ["cell 1: '17 GB' is in no code or output above"]


def test_html_and_records_prove_but_drawings_do_not() -> None:
    notebook = lesson("17 GB and 18 GB")
    data = {"text/html": "<td>17&#160;GB</td><svg><text>18 GB</text></svg>", "text/plain": "x"}
    notebook["cells"][0]["outputs"] = [{"output_type": "display_data", "data": data}]
    assert unproven_numbers(notebook) == ["cell 2: '18 GB' is in no code or output above"]
