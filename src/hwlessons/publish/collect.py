"""Collects the evidence that executed lessons carry in their outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwlessons.publish import store
from hwlessons.publish.evidence import ClaimEvidence, Evidence, EvidenceError, LessonEvidence
from hwlessons.publish.paths import Project
from hwlessons.publish.store import RunRecord
from hwlessons.show.claims import CLAIM_MIME
from hwlessons.show.machine import MACHINE_MIME


def collect(project: Project, records: list[RunRecord]) -> Evidence:
    """Returns the evidence of the given runs, which must be of one machine.

    Raises:
        EvidenceError: A lesson makes a claim twice, without a machine cell before it, or broken; lessons ran on
            different machines.
    """
    if not records:
        raise EvidenceError("no lesson has been run")
    machine: dict[str, Any] = {}
    claims: list[ClaimEvidence] = []
    for record in records:
        notebook = store.read_notebook(store.executed_path(project, record.lesson_id))
        found, lesson_claims = claims_of(notebook, record)
        claims += lesson_claims
        for fact in ("device_name", "torch", "python"):
            if machine and found and found.get(fact) != machine.get(fact):
                raise EvidenceError(
                    f"lesson {record.lesson_id} ran with {fact} {found.get(fact)!r}, the lessons before it with "
                    f"{machine.get(fact)!r}; run all lessons on one machine"
                )
        machine = machine or found
    return Evidence(
        machine=machine,
        date=max(record.date for record in records),
        commit=max(records, key=lambda record: record.date).commit,
        lessons=tuple(LessonEvidence(r.lesson_id, r.seconds, r.peak_memory_bytes) for r in records),
        claims=tuple(claims),
    )


def claims_of(notebook: Any, record: RunRecord) -> tuple[dict[str, Any], list[ClaimEvidence]]:
    """Returns the machine of an executed lesson and its claims, in order.

    Raises:
        EvidenceError: As `collect` does.
    """
    machine: dict[str, Any] = {}
    claims: dict[str, ClaimEvidence] = {}
    for mime, data in _records(notebook):
        if mime == MACHINE_MIME:
            machine = dict(data)
            continue
        name = str(data.get("name"))
        if not machine:
            raise EvidenceError(f"lesson {record.lesson_id} makes the claim {name!r} before its machine cell")
        if data.get("verdict") == "broken":
            raise EvidenceError(f"lesson {record.lesson_id}: the claim {name!r} is broken")
        if name in claims:
            raise EvidenceError(f"lesson {record.lesson_id} makes the claim {name!r} twice; give each its own name")
        claims[name] = _claim(data, machine, record)
    return machine, list(claims.values())


def _records(notebook: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            for mime in (MACHINE_MIME, CLAIM_MIME):
                if mime in output.get("data", {}):
                    yield mime, output["data"][mime]


def _claim(data: dict[str, Any], machine: dict[str, Any], record: RunRecord) -> ClaimEvidence:
    kept = ("kernels", "predicted", "measured", "unit", "relation", "rel_tol", "abs_tol", "kind", "verdict")
    missing = [key for key in kept if key not in data]
    if missing:
        raise EvidenceError(f"lesson {record.lesson_id}: the claim {data.get('name')!r} lacks {', '.join(missing)}")
    return ClaimEvidence(
        claim_id=data["name"],
        lesson_id=record.lesson_id,
        lesson_hash=record.lesson_hash,
        package_hash=record.package_hash,
        reason=data.get("reason") or "",
        torch=machine["torch"],
        python=machine["python"],
        device=machine["device_name"],
        date=record.date,
        commit=record.commit,
        **{key: data[key] for key in kept},
    )


def new_file(folder: Path, evidence: Evidence) -> Path:
    """Returns an unused path for a run's file, named after its device and day."""
    device = re.sub(r"[^a-z0-9]+", "-", evidence.machine["device_name"].lower()).strip("-")
    stem = f"{device}-{evidence.date}"
    names = [stem, *(f"{stem}-{n}" for n in range(2, 1000))]
    return next(path for path in (folder / f"{name}.json" for name in names) if not path.exists())
