"""What every widget promises on a built page, in a real browser: a page that shows each as it begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwlessons.show.widgets import WIDGETS

PAGE = "book/all.html"
LESSON = "notebooks/01_widgets.html"
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
every_widget = pytest.mark.parametrize("name", WIDGETS)


def cells_of(page: Any, name: str) -> list[list[str]]:
    rows: list[list[str]] = page.locator(f"hwl-{name}").evaluate(
        "at => [...at.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))"
    )
    return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows]


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("name", [PAGE, LESSON])
def test_all_are_drawn_and_nothing_goes_wrong(
    open_page: Callable[..., Any], bases: dict[str, str], name: str, scheme: str
) -> None:
    there = open_page(bases[scheme], name)
    for widget in WIDGETS:
        assert there.page.locator(f"hwl-{widget} .hwl-explorer").count() >= 1, widget
    ids = there.page.evaluate("[...document.querySelectorAll('[id]')].map(at => at.id)")
    assert len(ids) == len(set(ids))
    assert there.faults == []


@every_widget
def test_without_scripts_its_table_stays_and_says_the_same(
    open_page: Callable[..., Any], bases: dict[str, str], name: str
) -> None:
    plain = open_page(bases["file"], PAGE, java_script_enabled=False).page
    wanted = [list(row) for row in WIDGETS[name]().grid()[0].rows]
    assert plain.locator(f"hwl-{name} input").count() == 0
    assert plain.locator(f"hwl-{name} table").is_visible()
    caption = plain.locator(f"hwl-{name} caption").inner_text()
    assert WIDGETS[name]().grid()[1] == caption.replace("\N{NO-BREAK SPACE}", " ")
    texts = plain.locator(f"hwl-{name} tbody").inner_text().splitlines()
    assert [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in text.split("\t")] for text in texts] == wanted
    assert cells_of(open_page(bases["file"], PAGE).page, name) == wanted


@every_widget
def test_it_fits_a_phone_and_a_finger(open_page: Callable[..., Any], bases: dict[str, str], name: str) -> None:
    page = open_page(bases["http"], PAGE, **PHONE).page
    assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    boxes = (
        page.locator(f"hwl-{name}")
        .locator("button, input, select")
        .evaluate_all("all => all.map(at => at.getBoundingClientRect()).map(box => [box.right, box.width, box.height])")
    )
    assert max(right for right, *_ in boxes) <= PHONE["viewport"]["width"]
    assert min(min(size) for _, *size in boxes) >= 44


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
@every_widget
def test_axe_finds_nothing(
    open_page: Callable[..., Any], bases: dict[str, str], name: str, options: dict[str, Any]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    there = open_page(bases["http"], PAGE, **options)
    rules = {"label-content-name-mismatch": {"enabled": True}, "target-size": {"enabled": True}}
    found = Axe().run(there.page, f"hwl-{name}", {"resultTypes": ["violations"], "rules": rules, "preload": False})
    violations = found.response["violations"]
    assert [f"{one['id']}: {node['html'][:150]}" for one in violations for node in one["nodes"]] == []
    assert there.faults == []


@every_widget
def test_a_bad_state_is_said_and_not_taken(open_page: Callable[..., Any], bases: dict[str, str], name: str) -> None:
    there = open_page(bases["http"], PAGE)
    element = there.page.locator(f"hwl-{name}")
    before = json.loads(element.get_attribute("state"))
    for state in ("{}", "no state at all", "null"):
        element.evaluate("(at, state) => at.setAttribute('state', state)", state)
        assert json.loads(element.get_attribute("state")) == before
        assert element.locator(".hwl-problem:not(:empty)").count() == 1
    assert there.faults == []


@every_widget
def test_a_saved_page_can_be_opened_again(
    open_page: Callable[..., Any], bases: dict[str, str], scratch: Path, name: str
) -> None:
    (scratch / "book" / "saved.html").write_text(open_page(bases["http"], PAGE).page.content(), "utf-8")
    again = open_page(bases["file"], "book/saved.html")
    assert cells_of(again.page, name) == [list(row) for row in WIDGETS[name]().grid()[0].rows]


def test_a_page_loads_the_scripts_of_its_widgets_only(scratch: Path) -> None:
    text = (scratch / PAGE).read_text("utf-8")
    assert all(f"hwl-{name}.js" in text for name in WIDGETS)
    assert "hwl-widgets" not in (scratch / "book" / "index.html").read_text("utf-8")
