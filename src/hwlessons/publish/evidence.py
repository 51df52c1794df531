"""The evidence schema: what is kept of each claim, on which machine, and what one run's file holds.

Files in `book/evidence` follow it, so fields are added, never renamed or dropped.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from hwlessons.publish.paths import PublishError
from hwlessons.show.machine import KINDS

SCHEMA = "hwlessons-evidence/1"
RELATIONS = ("equal", "at_most", "at_least")
VERDICTS = ("holds", "not applicable here")
MACHINE_FACTS = ("device", "device_name", "kernels", "torch", "python")


class EvidenceError(PublishError):
    """Evidence is missing, double, broken or not of the schema; the message names the lesson and the claim."""


@dataclass(frozen=True)
class ClaimEvidence:
    """One claim of one lesson on one machine.

    Attributes:
        claim_id: The claim's name; unique within its lesson.
        lesson_id: The notebook's name without its ending.
        lesson_hash: SHA-256 of the lesson's code cells.
        package_hash: SHA-256 of the modules of the package that they reach.
        kernels: Kernels for which the claim is made; None where they make no difference.
        predicted: The formula's number, in `unit`.
        measured: The number found, in `unit`.
        unit: The unit of both; "" for a plain number.
        relation: "equal", "at_most" or "at_least" (measured against predicted).
        rel_tol: Allowed difference as a fraction of the predicted number.
        abs_tol: Allowed difference in `unit`.
        kind: "computed", "traced", "simulated", "measured" or "recorded".
        verdict: "holds" or "not applicable here".
        reason: Why it is not applicable; "" where it holds.
        torch: Version of torch.
        python: Version of Python.
        device: Name of the device.
        date: Day of the run, ISO 8601.
        commit: Commit of the run.
    """

    claim_id: str
    lesson_id: str
    lesson_hash: str
    package_hash: str
    kernels: str | None
    predicted: int | float
    measured: int | float
    unit: str
    relation: str
    rel_tol: int | float
    abs_tol: int | float
    kind: str
    verdict: str
    reason: str
    torch: str
    python: str
    device: str
    date: str
    commit: str

    def __post_init__(self) -> None:
        where = f"claim {self.claim_id!r} of lesson {self.lesson_id}"
        _check_types(self, where)
        for name in ("predicted", "measured", "rel_tol", "abs_tol"):
            if not math.isfinite(getattr(self, name)):
                raise EvidenceError(f"{where}: {name} is {getattr(self, name)}, not a finite number")
        for name, allowed in (("relation", RELATIONS), ("kind", KINDS), ("verdict", VERDICTS)):
            if getattr(self, name) not in allowed:
                raise EvidenceError(f"{where}: {name} is {getattr(self, name)!r}, allowed: {', '.join(allowed)}")


@dataclass(frozen=True)
class LessonEvidence:
    """What running one lesson took: wall-clock seconds, and the most RAM its kernel held, in bytes (0: not known)."""

    lesson_id: str
    seconds: int | float
    peak_memory_bytes: int

    def __post_init__(self) -> None:
        _check_types(self, f"lesson {self.lesson_id!r}")


@dataclass(frozen=True)
class Evidence:
    """One run of the lessons on one machine: its facts, its day and commit, the lessons and their claims."""

    machine: dict[str, Any]
    date: str
    commit: str
    lessons: tuple[LessonEvidence, ...]
    claims: tuple[ClaimEvidence, ...]

    def __post_init__(self) -> None:
        missing = [name for name in MACHINE_FACTS if not isinstance(self.machine.get(name), str)]
        if missing:
            raise EvidenceError(f"the machine of the run of {self.date} lacks {', '.join(missing)}")
        seen: set[tuple[str, str]] = set()
        for claim in self.claims:
            if (claim.lesson_id, claim.claim_id) in seen:
                raise EvidenceError(
                    f"lesson {claim.lesson_id} makes the claim {claim.claim_id!r} twice; give each its own name"
                )
            seen.add((claim.lesson_id, claim.claim_id))

    def dumps(self) -> str:
        """Returns the text of this run's file."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load(path: Path) -> Evidence:
    """Returns the run in a file.

    Raises:
        EvidenceError: The file is not of the schema.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        schema = data.pop("schema", None)
        if schema != SCHEMA:
            raise EvidenceError(f"schema is {schema!r}, expected {SCHEMA!r}")
        data["lessons"] = tuple(_build(LessonEvidence, row) for row in data["lessons"])
        data["claims"] = tuple(_build(ClaimEvidence, row) for row in data["claims"])
        return _build(Evidence, data)
    except EvidenceError as error:
        raise EvidenceError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{path} is not an evidence file: {type(error).__name__}: {error}") from None


def _build(kind: Any, row: dict[str, Any]) -> Any:
    names = {field.name for field in fields(kind)}
    if wrong := names ^ set(row):
        raise EvidenceError(f"fields of {kind.__name__} missing or unknown: {', '.join(sorted(wrong))}")
    return kind(**row)


def _check_types(record: Any, where: str) -> None:
    for name, kind in get_type_hints(type(record)).items():
        value = getattr(record, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise EvidenceError(f"{where}: {name} is {value!r}, expected {kind}")
