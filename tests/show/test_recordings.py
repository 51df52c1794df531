"""Recorded runs: found, marked with machine and date, and never invented."""

import json
from pathlib import Path
from typing import Any

import pytest

from hwlessons import show

GPU = {"device": "cuda", "device_name": "Test GPU", "kernels": "cuda", "torch": "2.13.0+cu130", "python": "3.12.1"}


def write(folder: Path, name: str, date: str, measured: int, **changed: Any) -> None:
    row = {
        "claim_id": "peak", "lesson_id": "05_vram_accounting", "kernels": "cuda", "predicted": 16, "measured": measured,
        "unit": "B", "relation": "equal", "rel_tol": 0, "abs_tol": 0, "kind": "measured", "verdict": "holds",
        "reason": "",
    }  # fmt: skip
    run = {"schema": "hwlessons-evidence/1", "machine": {**GPU, **changed.pop("machine", {})}, "date": date}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({**run, "claims": [{**row, **changed}]}), "utf-8")


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HWLESSONS_EVIDENCE", raising=False)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path / "book" / "evidence"


@pytest.mark.parametrize("lesson", [5, "05", "5", "05_vram_accounting"])
def test_the_newest_run_is_shown_with_machine_and_date(evidence: Path, lesson: str | int) -> None:
    write(evidence, "a.json", "2026-05-01", 18)
    write(evidence, "b.json", "2026-03-01", 17)
    shown = show.recorded(lesson, "peak")
    assert shown.record is not None and shown.record["measured"] == 18
    assert shown.date == "2026-05-01"
    assert "recorded on Test GPU, torch 2.13.0, 2026-05-01" in shown.text
    assert "recorded on Test GPU, torch 2.13.0, 2026-05-01" in shown.html
    assert shown._records() == {}


@pytest.mark.parametrize(
    "changed",
    [{"claim_id": "other"}, {"lesson_id": "01_training_step"}, {"verdict": "not applicable here"},
     {"machine": {"device": "cpu"}}],
)  # fmt: skip
def test_without_a_recorded_run_one_line_says_so(evidence: Path, changed: dict[str, Any]) -> None:
    write(evidence, "a.json", "2026-05-01", 18, **changed)
    shown = show.recorded("05", "peak")
    assert shown.record is None
    assert shown.text == "peak: no run on cuda is recorded yet."


def test_without_any_folder_one_line_says_so(evidence: Path) -> None:
    assert show.recorded("05", "peak").record is None


def test_the_folder_can_be_named(evidence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "elsewhere", "a.json", "2026-05-01", 18)
    monkeypatch.setenv("HWLESSONS_EVIDENCE", str(tmp_path / "elsewhere"))
    assert show.recorded("05", "peak").record is not None


@pytest.mark.parametrize("text", ["{", "[]", '{"date": "x"}', "3"])
def test_a_file_that_is_no_evidence_is_named(evidence: Path, text: str) -> None:
    evidence.mkdir(parents=True)
    (evidence / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=r"bad\.json is not an evidence file"):
        show.recorded("05", "peak")
