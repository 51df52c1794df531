"""Every page of the built site: no error, nothing from another host, readable for everyone."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("HWLESSONS_SITE", ROOT / "_build" / "html"))
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_static" not in path.parts)
CONTENT = [page for page in PAGES if page.startswith(("book/", "notebooks/"))]
LESSONS = [page for page in PAGES if page.startswith("notebooks/")]
LOADS = re.compile(
    r"""<(?:script|link|img|iframe|source|video|object|embed)\b[^>]*?\b(?:src|href|data)\s*=\s*["'](?:https?:)?//""",
    re.IGNORECASE,
)


def test_the_site_has_its_pages(html: Path) -> None:
    assert {"index.html", "search.html", "book/evidence.html"} <= set(PAGES)
    assert LESSONS


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_and_loads_nothing_from_elsewhere(visit: Any, name: str, scheme: str) -> None:
    assert visit(name, scheme).faults == []


@pytest.mark.parametrize("name", PAGES)
def test_no_page_names_a_foreign_file(html: Path, name: str) -> None:
    assert LOADS.findall((html / name).read_text("utf-8")) == []


@pytest.mark.parametrize("name", CONTENT)
def test_a_page_fits_a_phone(visit: Any, name: str) -> None:
    page = visit(name, viewport={"width": 360, "height": 740}).page
    too_wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
    assert too_wide <= 0, f"{name} is {too_wide} px wider than a phone"


@pytest.mark.parametrize("name", CONTENT)
def test_what_the_lessons_draw_follows_dark_mode(visit: Any, name: str) -> None:
    page = visit(name, color_scheme="dark").page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    light_grounds = page.evaluate(
        """() => [...document.querySelectorAll('.bd-article [class^="hwl-"]')].filter(drawn => {
            for (let at = drawn; at && !at.matches('.bd-article'); at = at.parentElement) {
                const colour = getComputedStyle(at).backgroundColor.match(/[\\d.]+/g).map(Number);
                if ((colour[3] ?? 1) > 0.3 && colour[0] + colour[1] + colour[2] > 450) return true;
            }
        }).map(drawn => drawn.className)"""
    )
    assert light_grounds == []


@pytest.mark.parametrize("name", CONTENT)
def test_tables_and_pictures_can_be_read_aloud(visit: Any, name: str) -> None:
    page = visit(name).page
    faults = page.evaluate(
        """() => {
            const say = (what, found) => found.map(at => what + ': ' + at.outerHTML.slice(0, 120));
            const all = (where) => [...document.querySelectorAll('.bd-article ' + where)];
            return [
                ...say('no alt', all('img').filter(at => !at.getAttribute('alt'))),
                ...say('no label', all('figure[role=img]').filter(at => !at.getAttribute('aria-label'))),
                ...say('no caption', all('table.hwl-table').filter(at => !at.caption?.textContent.trim())),
                ...say('no scope', all('table.hwl-table th').filter(at => !at.getAttribute('scope'))),
                ...say('empty header', all('table th').filter(at => !at.textContent.trim())),
            ];
        }"""
    )
    assert faults == []


@pytest.mark.parametrize("name", CONTENT)
def test_maths_is_typeset(visit: Any, name: str) -> None:
    page = visit(name).page
    formulas = page.locator(".bd-article .math")
    if formulas.count():
        page.wait_for_selector("mjx-container", timeout=10_000)
    assert page.locator("mjx-merror, [data-mjx-error], mjx-mtext[style*='color: red']").count() == 0
    assert page.locator(".bd-article mjx-container").count() >= formulas.count()


@pytest.mark.parametrize("name", CONTENT)
def test_the_maths_script_is_loaded_only_where_there_is_maths(html: Path, name: str) -> None:
    text = (html / name).read_text("utf-8")
    assert ("mathjax/tex-chtml.js" in text) == ('class="math' in text)


def test_icons_are_drawn_without_the_icon_script(visit: Any) -> None:
    page = visit("book/index.html").page
    fonts = page.evaluate("[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family + f.weight)")
    assert any(re.search("Font ?Awesome.*900", font) for font in fonts), fonts
    content = page.evaluate("getComputedStyle(document.querySelector('.fa-bars'), '::before').content")
    assert content not in ("none", "normal", '""')


@pytest.mark.parametrize("name", CONTENT)
def test_a_page_says_what_it_is(html: Path, name: str) -> None:
    text = (html / name).read_text("utf-8")
    (description,) = re.findall(r'<meta [^>]*name="description"[^>]*>', text)
    assert len(description) > 60
    assert re.search(r'<link rel="icon" href="[^"]*favicon\.svg"', text)


def test_the_first_page_makes_no_request_but_for_the_next(html: Path) -> None:
    # without an icon a browser asks for /favicon.ico, with one in a file it breaks off: each only sometimes in time
    assert re.findall(r'(?:src|href|url)="?([^">]+)', (html / "index.html").read_text("utf-8"))[0] == "data:,"


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_search_finds_a_term(visit: Any, scheme: str) -> None:
    there = visit("search.html?q=microbatch", scheme)
    there.page.wait_for_selector("ul.search li", timeout=10_000)
    assert "glossary" in there.page.locator("ul.search").inner_text().lower()


class _Links(HTMLParser):
    """Collects a page's links and the ids they may point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")


def test_every_link_within_the_site_leads_somewhere(html: Path) -> None:
    parsed = {page: _Links((html / page).read_text("utf-8")) for page in PAGES}
    dead = []
    for page, found in parsed.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                (html / page).parent.joinpath(unquote(parts.path)).resolve() if parts.path else (html / page).resolve()
            )
            name = target.relative_to(html).as_posix() if target.is_relative_to(html) else None
            if not target.is_file() or (name in parsed and unquote(parts.fragment) not in parsed[name].ids):
                dead.append(f"{page} → {link}")
    assert dead == []
