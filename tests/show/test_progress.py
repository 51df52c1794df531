"""Progress: nothing in a build, nothing into a log, all items always."""

import io
import sys

import pytest

from hwlessons import show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("build", ["1", ""])
def test_a_build_is_silent_and_a_terminal_is_not(monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("HWLESSONS_BUILD", build)
    assert list(show.progress(range(3), "sweep")) == [0, 1, 2]
    assert ("sweep" in terminal.getvalue()) == (build == "")


def test_a_log_gets_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("HWLESSONS_BUILD", raising=False)
    assert list(show.progress(iter("ab"), "letters", total=2)) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_an_early_end_closes_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Bar(list[int]):
        def close(self) -> None:
            closed.append(True)

    monkeypatch.delenv("HWLESSONS_BUILD", raising=False)
    module = sys.modules["hwlessons.show.progress"]
    monkeypatch.setattr(module, "is_notebook", lambda: True)
    monkeypatch.setattr(module, "_bar", lambda items, label, total: Bar(items))
    for item in show.progress([1, 2, 3], "x"):
        if item == 2:
            break
    assert closed
