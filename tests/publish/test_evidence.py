from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from hwlessons.publish import collect, evidence, run, store, tables
from hwlessons.publish.evidence import ClaimEvidence, Evidence, EvidenceError, LessonEvidence
from hwlessons.publish.paths import Project
from hwlessons.show.claims import CLAIM_MIME
from hwlessons.show.machine import MACHINE_MIME

MACHINE = {"device": "cpu", "device_name": "CPU <x>", "kernels": "cpu", "torch": "2.13.0", "python": "3.11.7"}
CLAIM = {
    "name": "bytes", "predicted": 60, "measured": 60, "unit": "B", "kind": "computed", "relation": "equal",
    "rel_tol": 0, "abs_tol": 0, "verdict": "holds", "reason": None, "kernels": None,
}  # fmt: skip
RECORD = store.RunRecord("key", "01_sample", "lesson", "package", 1.5, 2**30, 3, "2026-11-30", "abc")


def executed(*outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cells": [{"outputs": [{"data": data} for data in outputs]}]}


def claim(**changes: Any) -> dict[str, Any]:
    return {CLAIM_MIME: {**CLAIM, **changes}}


def evidence_of(*outputs: dict[str, Any]) -> Evidence:
    machine, claims = collect.claims_of(executed({MACHINE_MIME: MACHINE}, *outputs), RECORD)
    return Evidence(machine, "2026-11-30", "abc", (LessonEvidence("01_sample", 1.5, 2**30),), tuple(claims))


def test_a_claim_is_joined_to_its_machine_and_run() -> None:
    (found,) = evidence_of(claim()).claims
    assert dataclasses.asdict(found) == {
        "claim_id": "bytes", "lesson_id": "01_sample", "lesson_hash": "lesson", "package_hash": "package",
        "kernels": None, "predicted": 60, "measured": 60, "unit": "B", "relation": "equal", "rel_tol": 0, "abs_tol": 0,
        "kind": "computed", "verdict": "holds", "reason": "", "torch": "2.13.0", "python": "3.11.7",
        "device": "CPU <x>", "date": "2026-11-30", "commit": "abc",
    }  # fmt: skip


def test_a_claim_made_twice_is_refused() -> None:
    with pytest.raises(EvidenceError, match="lesson 01_sample makes the claim 'bytes' twice"):
        evidence_of(claim(), claim(predicted=61, measured=61))


def test_a_claim_without_a_machine_is_refused() -> None:
    with pytest.raises(EvidenceError, match="claim 'bytes' before its machine cell"):
        collect.claims_of(executed(claim(), {MACHINE_MIME: MACHINE}), RECORD)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "broken"}, "lesson 01_sample: the claim 'bytes' is broken"),
        ({"kind": "guessed"}, "kind is 'guessed', allowed: computed"),
        ({"predicted": float("nan")}, "predicted is nan, not a finite number"),
        ({"measured": "60"}, "measured is '60', expected"),
        ({"measured": True}, "measured is True, expected"),
        ({"relation": "about"}, "relation is 'about', allowed: equal"),
        ({"unit": None}, "unit is None"),
    ],
)
def test_a_claim_that_is_not_as_it_must_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EvidenceError, match=said):
        evidence_of(claim(**changes))


def test_a_claim_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(EvidenceError, match="'bytes' lacks unit"):
        evidence_of({CLAIM_MIME: {key: value for key, value in CLAIM.items() if key != "unit"}})


def test_lessons_of_two_machines_are_no_one_run(book: Project) -> None:
    records = []
    for lesson, name in (("01_a", "CPU a"), ("02_b", "CPU b")):
        record = dataclasses.replace(RECORD, lesson_id=lesson)
        cell = {
            "cell_type": "code",
            "source": "",
            "outputs": [{"data": {MACHINE_MIME: {**MACHINE, "device_name": name}}}],
        }
        store.save(book, {"cells": [cell], "nbformat": 4}, record)
        records.append(record)
    with pytest.raises(EvidenceError, match="02_b ran with device_name 'CPU b', the lessons before it with 'CPU a'"):
        collect.collect(book, records)


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run_evidence = evidence_of(claim(), claim(name="other", predicted=0.5, measured=0.5))
    path = collect.new_file(tmp_path, run_evidence)
    assert path.name == "cpu-x-2026-11-30.json"
    path.write_text(run_evidence.dumps(), "utf-8")
    assert evidence.load(path) == run_evidence
    assert collect.new_file(tmp_path, run_evidence).name == "cpu-x-2026-11-30-2.json", "no run overwrites another"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(schema="other"), "schema is 'other'"),
        (lambda data: data.pop("claims"), "KeyError"),
        (lambda data: data["claims"][0].pop("unit"), "ClaimEvidence missing or unknown: unit"),
        (lambda data: data["claims"][0].update(more=1), "ClaimEvidence missing or unknown: more"),
        (lambda data: data["claims"].append(data["claims"][0]), "makes the claim 'bytes' twice"),
        (lambda data: data["machine"].pop("torch"), "lacks torch"),
        (lambda data: data["claims"][0].update(verdict="broken"), "verdict is 'broken'"),
    ],
)
def test_a_file_that_is_not_of_the_schema_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    data = json.loads(evidence_of(claim()).dumps())
    change(data)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(EvidenceError, match=said):
        evidence.load(path)


def test_the_recorded_runs_of_the_book_are_of_the_schema(project: Project) -> None:
    for path in project.recorded_runs.glob("*.json"):
        evidence.load(path)


def test_an_executed_lesson_yields_its_claims(book: Project) -> None:
    found = collect.collect(book, run.run_lessons(book, book.lessons(), say=lambda text: None))
    assert [(c.claim_id, c.verdict) for c in found.claims] == [
        ("bytes of the tensor", "holds"),
        ("saved bytes", "not applicable here"),
    ]
    assert found.machine["device_name"] == "Sample CPU"
    assert found.commit == "unknown"
    assert found.lessons[0].peak_memory_bytes > 0


def plain(html: str) -> str:
    """The HTML with ordinary spaces."""
    return html.replace("\N{NO-BREAK SPACE}", " ")


def test_the_table_shows_every_column_and_is_accessible() -> None:
    shown = evidence_of(claim(), claim(name="a < b", predicted=4, measured=5, abs_tol=1))
    html = plain(tables.claims(shown, lambda lesson: f'<a href="x">{lesson}</a>'))
    for text in ("a &lt; b", "60 B", ">1.25<", "computed", "holds", "0 (exact)", "± 1", "CPU &lt;x&gt;", 'href="x"'):
        assert text in html, text
    assert html.count('scope="col"') == 8 and html.count('scope="row"') == 2
    assert "<th></th>" not in html and "<caption" in html
    assert isinstance(shown.claims[0], ClaimEvidence)


def test_the_summary_counts() -> None:
    there = claim(name="there", verdict="not applicable here", reason="exact for cuda kernels")
    html = tables.summary(evidence_of(claim(), there))
    assert "2 claims in 1 lesson: <strong>1 holds</strong>, 1 not applicable here" in html


def test_recorded_runs_are_listed_with_their_claims() -> None:
    html = plain(tables.recorded_runs([("x.json", evidence_of(claim()))], str))
    assert "1 of 1" in html and "x.json" in html and "<details" in html and "60 B" in html
    assert "No recorded run" in tables.recorded_runs([], str)
