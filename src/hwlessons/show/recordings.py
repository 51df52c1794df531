"""Recorded runs: what a claim's number was on a machine that the reader may not have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from hwlessons.show.claim_rows import claim_row
from hwlessons.show.html import element
from hwlessons.show.machine import provenance
from hwlessons.show.output import Shown


@dataclass(eq=False)
class Recorded(Shown):
    """A recorded claim, or the remark that there is none.

    Attributes:
        record: the claim as the evidence file keeps it (predicted, measured, unit, ...); None where there is none.
        machine: the facts of the machine of that run; empty where there is none.
        date: the day of that run, ISO 8601; empty where there is none.
    """

    record: dict[str, Any] | None = field(kw_only=True)
    machine: dict[str, Any] = field(kw_only=True)
    date: str = field(kw_only=True)


def recorded(lesson: str | int, claim: str, *, device: str = "cuda") -> Recorded:
    """Shows a claim of an earlier run, marked with its machine and date, or says that no recorded run has it.

    Looks into the files of `book/evidence` above the current folder, or of the folder that HWLESSONS_EVIDENCE names,
    and takes the newest run. It leaves no evidence of its own: nothing ran here.

    Args:
        lesson: the lesson's number or notebook name.
        claim: the claim's name.
        device: "cuda" or "cpu", where the run was made.

    Raises:
        ValueError: if an evidence file cannot be read.
    """
    found = [
        (run, row)
        for run in _runs()
        if run["machine"].get("device") == device
        for row in run["claims"]
        if _is_lesson(row["lesson_id"], lesson) and row["claim_id"] == claim and row["verdict"] == "holds"
    ]
    if not found:
        line = f"{claim}: no run on {device} is recorded yet."
        html = element("div", escape(line), class_="hwl-recorded")
        return Recorded(html, line, record=None, machine={}, date="")._emit()
    run, row = max(found, key=lambda pair: str(pair[0]["date"]))
    where = f"{provenance('recorded', run['machine'])}, {run['date']}"
    html, text = claim_row({**row, "name": claim, "kind": "recorded"}, where)
    return Recorded(html, text, record=dict(row), machine=dict(run["machine"]), date=run["date"])._emit()


def _is_lesson(lesson_id: str, lesson: str | int) -> bool:
    number = str(lesson)
    return lesson_id == number or (number.isdecimal() and lesson_id.startswith(f"{int(number):02d}_"))


def _runs() -> Iterator[Mapping[str, Any]]:
    folder = _folder()
    for path in sorted(folder.glob("*.json")) if folder else ():
        try:
            run = json.loads(path.read_text("utf-8"))
            complete = {"machine", "date", "claims"} <= set(run)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not an evidence file: {error}") from None
        if not complete:
            raise ValueError(f"{path} is not an evidence file: it needs machine, date and claims")
        yield run


def _folder() -> Path | None:
    named = os.environ.get("HWLESSONS_EVIDENCE")
    if named:
        return Path(named)
    here = Path.cwd()
    return next((p for p in (folder / "book" / "evidence" for folder in (here, *here.parents)) if p.is_dir()), None)
