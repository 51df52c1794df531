from __future__ import annotations

import io
import sys

import pytest

from hwlessons.publish.progress import Progress


class Terminal(io.StringIO):
    """Collects what is written, as a terminal would."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as standard error; not a fixture, for pytest sets its own between fixtures and test."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def _two_cells() -> None:
    with Progress(2) as progress:
        progress.begin("05_vram")
        progress.advance()
        progress.advance()


def test_a_terminal_sees_a_bar_with_the_lesson(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = terminal(monkeypatch)
    _two_cells()
    assert "05_vram" in seen.getvalue() and "/2" in seen.getvalue()


def test_without_tqdm_a_terminal_sees_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    _two_cells()
    assert seen.getvalue() == "running lesson 05_vram …\n"


def test_a_log_gets_a_line_a_lesson(capsys: pytest.CaptureFixture[str]) -> None:
    _two_cells()
    assert capsys.readouterr().err == "running lesson 05_vram …\n"


def test_nothing_to_run_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = terminal(monkeypatch)
    with Progress(0):
        pass
    assert seen.getvalue() == ""
