"""How a claim looks: one row from the record that the executed notebook keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from hwlessons.show.html import element, label_list, unbroken, verdict_box, where_html
from hwlessons.show.numbers import plain_number, write_quantity, write_ratio

_MARKS = {"holds": "✓", "broken": "✗", "not applicable here": "–"}
_COLOURS = {"holds": "#009E73", "broken": "#D55E00", "not applicable here": "#7F7F7F"}
_BOUNDS = {"at_most": ("at most the predicted", "+"), "at_least": ("at least the predicted", "−")}


def claim_row(record: Mapping[str, Any], where: str) -> tuple[str, str]:
    """A claim's row as HTML and as text; `where` says where its number comes from."""
    verdict, name = record["verdict"], record["name"]
    values = [
        ("predicted", write_quantity(record["predicted"], record["unit"])),
        (record["kind"], write_quantity(record["measured"], record["unit"])),
        # how far inside a bound a number lies says nothing about the bound
        *([("ratio", write_ratio(record["measured"], record["predicted"]))] if record["relation"] == "equal" else []),
    ]
    tolerance = ("tolerance", tolerance_in_words(record))
    marked, reason = f"{_MARKS[verdict]} {verdict}", f" ({record['reason']})" if record.get("reason") else ""
    html = verdict_box(
        f"{element('strong', escape(marked))}{escape(reason)} · {escape(name)} {where_html(where)}",
        label_list([*[(label, unbroken(value)) for label, value in values], (tolerance[0], escape(tolerance[1]))]),
        colour=_COLOURS[verdict],
        class_="hwl-claim",
        label=f"Claim: {name}",
    )
    return html, f"{marked}{reason} · {name} ({where})\n    " + " · ".join(
        f"{label} {value}" for label, value in [*values, tolerance]
    )


def tolerance_in_words(record: Mapping[str, Any]) -> str:
    """What a claim's record allows: "0 (exact)", "± 0.1 %", "at most the predicted + 5 B"."""
    parts = []
    if record["rel_tol"]:
        parts.append(f"{100 * record['rel_tol']:.3g} %")
    if record["abs_tol"]:
        parts.append(write_quantity(plain_number(record["abs_tol"], "abs_tol"), record["unit"]))
    allowed = " or ".join(parts)
    if record["relation"] == "equal":
        return f"± {allowed}" if allowed else "0 (exact)"
    bound, sign = _BOUNDS[record["relation"]]
    return f"{bound} {sign} {allowed}" if allowed else bound
