"""Numbers with a unit in prose must occur in the code or output above them, at the precision that is printed."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from hwlessons.units import UNITS
from lesson_checks.cells import Notebook, tags, without_code, without_fences

EXEMPT_TAGS = ("time", "predict")
_MAGNITUDES = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_NAMES = sorted(UNITS, key=len, reverse=True)
_NUMBER = r"(?<![\w.,])(?P<number>\d{1,3}(?:[,_\u2009\u202f]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?P<exponent>[eE][+-]?\d+)?"
_MAGNITUDE = (
    r"(?:\s?(?P<magnitude>thousand|million|billion|[kMBT])(?=\s+(?:parameters|tokens|elements|samples|values)\b))?"
)
_UNIT = rf"(?:[\s-]+|(?=%|[KMGT]iB|[kKMGT]B|[mµn]s))(?P<unit>{'|'.join(map(re.escape, _NAMES))})(?![\w/])"
_WITH_UNIT = re.compile(_NUMBER + _MAGNITUDE + _UNIT)
_MAYBE_UNIT = re.compile(_NUMBER + _MAGNITUDE + rf"(?:{_UNIT})?")
_RANGE = re.compile(r"(\d(?:[\d,.]*\d)?)\s*(?:–|-|to)\s*(?=\d[\d,.]*\s*([^\W\d_/%]+(?:/\w+)?|%))")


class Quantity(NamedTuple):
    """A number in the unit it is written in: value, unit ("" if none), and half a step of its last printed digit."""

    value: float
    unit: str
    half_step: float
    text: str


def unproven_numbers(notebook: Notebook) -> list[str]:
    """Numbers with a unit in the prose of an executed notebook that no code or output above them holds."""
    problems: list[str] = []
    known: list[Quantity] = []
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "code":
            known += _quantities(cell["source"], _MAYBE_UNIT)
            for text in _output_texts(cell):
                known += _quantities(text, _MAYBE_UNIT)
            continue
        if set(tags(cell)) & set(EXEMPT_TAGS):
            continue
        # a solution's own block is run in the second run of the lesson
        own = [] if "solution" not in tags(cell) else _quantities(cell["source"], _MAYBE_UNIT, code=True)
        problems += [
            f"cell {number}: {claimed.text!r} is in no code or output above"
            for claimed in _quantities(_readable(cell["source"]), _WITH_UNIT)
            if not any(_proves(found, claimed) for found in (*known, *own))
        ]
    return problems


def _proves(found: Quantity, claimed: Quantity) -> bool:
    """Whether a number that was computed or shown is, rounded as the prose is, the number in the prose."""
    unit = UNITS[claimed.unit]
    if found.unit:
        same = UNITS[found.unit]
        candidates = [found.value * same.factor / unit.factor] if same.quantity == unit.quantity else []
    else:
        candidates = [found.value, found.value / unit.factor]
    return any(abs(value - claimed.value) <= claimed.half_step * (1 + 1e-9) for value in candidates)


def _quantities(text: str, pattern: re.Pattern[str], *, code: bool = False) -> list[Quantity]:
    if code:
        text = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    return [_quantity(found) for found in pattern.finditer(_spread_units(text))]


def _spread_units(text: str) -> str:
    """Gives both ends of a range their unit: "8–10 GB" becomes "8 GB – 10 GB"."""
    return _RANGE.sub(lambda found: f"{found[1]} {found[2]} – " if found[2] in UNITS else found[0], text)


def _quantity(found: re.Match[str]) -> Quantity:
    digits = re.sub(r"[,_\u2009\u202f]", "", found["number"])
    scale = _MAGNITUDES.get(found["magnitude"] or "", 1.0) * 10.0 ** int((found["exponent"] or "e0")[1:])
    half_step = 0.5 * 10.0 ** -len(digits.partition(".")[2])
    return Quantity(float(digits) * scale, found["unit"] or "", half_step * scale, found[0].strip())


def _readable(source: str) -> str:
    """Markdown as a reader sees its numbers: formulas unwrapped, code spans kept out."""
    text = without_code(without_fences(source))
    text = re.sub(r"\\(?:text|mathrm|operatorname)\s*\{([^{}]*)\}", r" \1", text)
    text = re.sub(r"\\[,;:! ]|~|&nbsp;|\u00a0", " ", text.replace("\\%", "%").replace("\\times", " × "))
    text = re.sub(r"\](?:\([^)]*\))", "]", text)
    return text.replace("{,}", ",").replace("$", "").replace("**", "").replace("_", " ")


def _output_texts(cell: dict[str, Any]) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield "".join(output.get("text", ""))
        for mime, data in output.get("data", {}).items():
            if mime == "text/html":
                yield html.unescape(
                    re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", " ", "".join(data), flags=re.DOTALL))
                )
            elif mime.endswith("json"):
                yield json.dumps(data)
            elif mime.startswith("text/"):
                yield "".join(data)
