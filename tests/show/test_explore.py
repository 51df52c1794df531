"""Controls: live in a notebook, nothing in a build, in plain Python or without ipywidgets."""

import sys
from typing import Any

import pytest

from hwlessons import show

CHOICES: dict[str, Any] = {"name": ["nf4", "int4"], "block_size": [16, 1024]}


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWLESSONS_BUILD", raising=False)
    monkeypatch.setattr(sys.modules["hwlessons.show.explore"], "is_notebook", lambda: True)


@pytest.fixture
def interacted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    ipywidgets = pytest.importorskip("ipywidgets")
    calls: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(ipywidgets, "interact", lambda draw, **controls: calls.append((draw, controls)))
    return calls


def test_a_notebook_gets_a_list_for_text_and_a_slider_for_numbers(notebook: None, interacted: Any) -> None:
    drawn = []
    show.explore(lambda **chosen: drawn.append(chosen), **CHOICES)
    ((draw, controls),) = interacted
    assert [type(control).__name__ for control in controls.values()] == ["Dropdown", "SelectionSlider"]
    assert [control.description for control in controls.values()] == ["name", "block size"]
    assert [control.value for control in controls.values()] == ["nf4", 16]
    assert controls["block_size"].options == (("16", 16), ("1,024", 1024))
    assert draw(name="int4", block_size=1024) is None  # what it returns would be displayed once more
    assert drawn == [{"name": "int4", "block_size": 1024}]


def test_a_build_gets_nothing(notebook: None, interacted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWLESSONS_BUILD", "1")
    show.explore(lambda **chosen: pytest.fail("drawn"), **CHOICES)
    assert not interacted


def test_plain_python_gets_nothing(interacted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWLESSONS_BUILD", raising=False)
    show.explore(lambda **chosen: pytest.fail("drawn"), **CHOICES)
    assert not interacted


def test_a_notebook_without_ipywidgets_gets_nothing(notebook: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    show.explore(lambda **chosen: pytest.fail("drawn"), **CHOICES)


@pytest.mark.parametrize(
    ("draw", "choices", "message"),
    [
        (None, CHOICES, "draw must be a function, got None"),
        (print, {}, "got none for anything"),
        (print, {"block_size": []}, "got none for block_size"),
    ],
)
def test_bad_input_is_refused(draw: Any, choices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show.explore(draw, **choices)
