"""The evidence page's tables, as HTML: every claim of a run, what the lessons took, and the recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from hwlessons import units
from hwlessons.publish.evidence import ClaimEvidence, Evidence
from hwlessons.show.claim_rows import tolerance_in_words
from hwlessons.show.html import Grid
from hwlessons.show.numbers import write_quantity, write_ratio

CLAIM_COLUMNS = ("claim", "verdict", "predicted", "found", "ratio", "tolerance", "kind", "kernels")
CLAIM_NUMERIC = (False, False, True, True, True, False, False, False)

Linker = Callable[[str], str]


def claims(evidence: Evidence, link: Linker) -> str:
    """Returns one table a lesson with all its claims.

    Args:
        evidence: The run.
        link: Gives HTML that names a lesson (a link to it) for its id.
    """
    lessons = [lesson.lesson_id for lesson in evidence.lessons]
    made = {lesson: [claim for claim in evidence.claims if claim.lesson_id == lesson] for lesson in lessons}
    where = _machine(evidence)
    return "\n".join(_claims_of(rows, link(lesson), lesson, where) for lesson, rows in made.items() if rows)


def _claims_of(rows: Sequence[ClaimEvidence], title: str, lesson: str, where: str) -> str:
    cells = [
        (
            claim.claim_id,
            claim.verdict + (f": {claim.reason}" if claim.reason else ""),
            write_quantity(claim.predicted, claim.unit),
            write_quantity(claim.measured, claim.unit),
            write_ratio(claim.measured, claim.predicted),
            tolerance_in_words(vars(claim)),
            claim.kind,
            claim.kernels or "any",
        )
        for claim in rows
    ]
    caption = f"{title}: {count(len(rows), 'claim')} on {escape(where)}"
    table = Grid(CLAIM_COLUMNS, cells, CLAIM_NUMERIC).html(caption, f"Claims of lesson {lesson}")
    return f'<div class="hwl-wide">{table}</div>'


def summary(evidence: Evidence) -> str:
    """Returns one paragraph: how many claims there are, how many hold, on which machine."""
    holding = sum(claim.verdict == "holds" for claim in evidence.claims)
    others = len(evidence.claims) - holding
    rest = f", {others} not applicable here" if others else ""
    return (
        f'<p class="hwl-summary">{count(len(evidence.claims), "claim")} in {count(len(evidence.lessons), "lesson")}: '
        f"<strong>{holding} hold{'s' if holding == 1 else ''}</strong>{rest}. Run on {escape(_machine(evidence))}, "
        f"on {escape(evidence.date)}, at commit {escape(evidence.commit[:12])}.</p>"
    )


def times(evidence: Evidence, link: Linker) -> str:
    """Returns the table of what running each lesson took."""
    rows = [
        (
            lesson.lesson_id,
            f"{lesson.seconds:.1f}",
            units.format_bytes(lesson.peak_memory_bytes) if lesson.peak_memory_bytes else "not known",
        )
        for lesson in evidence.lessons
    ]
    rows.append(("all", f"{sum(lesson.seconds for lesson in evidence.lessons):.1f}", ""))
    caption = f"measured on {_machine(evidence)}"
    return Grid(("lesson", "seconds", "peak memory of its process"), rows, (False, True, True)).html(
        escape(caption), caption
    )


def recorded_runs(runs: Sequence[tuple[str, Evidence]], link: Linker) -> str:
    """Returns the recorded runs: one table of all, then each run's claims, folded.

    Args:
        runs: File name and content of each.
        link: As for `claims`.
    """
    if not runs:
        return "<p>No recorded run is stored yet.</p>"
    rows = [
        (
            run.machine["device_name"],
            run.machine["kernels"],
            run.date,
            run.machine["torch"],
            f"{sum(claim.verdict == 'holds' for claim in run.claims)} of {len(run.claims)}",
            run.commit[:12],
        )
        for _, run in runs
    ]
    columns = ("device", "kernels", "date", "torch", "claims that hold", "commit")
    overview = Grid(columns, rows, (False, False, False, False, True, False)).html("Recorded runs", "Recorded runs")
    folded = [
        f'<details class="hwl-run"><summary>{escape(run.machine["device_name"])}, {escape(run.date)}: all claims '
        f"({escape(name)})</summary>{claims(run, link)}</details>"
        for name, run in runs
    ]
    return "\n".join([overview, *folded])


def _machine(evidence: Evidence) -> str:
    facts = evidence.machine
    return (
        f"{facts['device_name']} ({facts['kernels'].upper()} kernels, torch {facts['torch']}, Python {facts['python']})"
    )


def count(number: int, noun: str) -> str:
    """Returns a number and its noun: "1 claim", "12 claims"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
