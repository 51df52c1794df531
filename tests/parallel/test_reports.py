"""Of several ranks that failed, the cause comes first; a failure is told in one line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from hwlessons.parallel.errors import describe
from hwlessons.parallel.reports import FOLDER, Failure, read_failures, read_results, report, report_failure

LOST = "RuntimeError: [/src/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:6"


def write(folder: Path, told: list[Failure], exits: list[Failure]) -> None:
    for failure in told:
        (folder / f"failure{failure.rank}.json").write_text(json.dumps(asdict(failure)))
    (folder / "exits.json").write_text(json.dumps([asdict(failure) for failure in exits]))


def test_a_killed_rank_comes_before_those_that_it_left_waiting(tmp_path: Path) -> None:
    told = [Failure(0, LOST, at=2.0), Failure(2, "ValueError: late", at=3.0), Failure(1, "ValueError: early", at=1.0)]
    exits = [Failure(rank, "the process ended with exit code 1") for rank in (0, 1, 2)]
    exits += [Failure(3, "the process was killed by SIGTERM"), Failure(4, "the process was killed by SIGKILL")]
    write(tmp_path, told, exits)
    assert [failure.rank for failure in read_failures(tmp_path, 5)] == [4, 1, 0, 2, 3]
    write(tmp_path, [], exits[:1])
    assert read_failures(tmp_path, 1)[0].error == LOST  # what the rank itself said, not its exit code


def test_one_line_for_each_kind_of_end() -> None:
    lost = describe(1, [Failure(1, LOST, "ranks.py:7")], (None, None), {}, [], 2.0)
    assert lost == (
        "rank 1 of 2: RuntimeError: Connection closed by peer [127.0.0.1]:6 at ranks.py:7 — another rank had ended "
        "while this one waited for it (after 2.0 s; all processes have ended)"
    )
    late = describe(None, [], (1, None, None), {1: "ranks.py:9"}, [], 2.0)
    assert late.startswith("time limit reached, no report from rank 1 at ranks.py:9, 2 (after")
    assert describe(None, [], (1,), {}, [], 2.0).startswith("time limit reached, no report from rank (all had")
    assert describe(2, [], (None,), {}, ["usage", "error: no", "[rank 0] x"], 2.0).startswith(
        "torchrun ended with exit code 2: error: no (after"
    )


def test_what_a_rank_leaves_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    report({"loss": 0.5})
    try:
        raise KeyError("missing")
    except KeyError as error:
        report_failure(error, __file__)
    assert read_results(tmp_path, 3) == (None, {"loss": 0.5}, None)
    (failure,) = read_failures(tmp_path, 3)
    assert failure.error == "KeyError: 'missing'"
    assert failure.place.startswith("test_reports.py:")
    report_failure(SystemExit("no data"), __file__)
    assert (read_failures(tmp_path, 3)[0].error, read_failures(tmp_path, 3)[0].place) == ("no data", "")
