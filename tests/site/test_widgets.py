"""The number-format explorer on a built page, in a real browser: a scratch book, and every lesson that shows it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hwlessons.facts.formats import FORMATS, decode, encode, neighbours, spacing, write_bits
from hwlessons.show.widgets.numbers_as_text import table_row, write_value

SITE = Path(os.environ.get("HWLESSONS_SITE", Path(__file__).resolve().parents[2] / "_build" / "html"))
ELEMENT = "hwl-number-format-explorer"
LESSONS = [
    path.relative_to(SITE).as_posix()
    for path in sorted(SITE.glob("notebooks/*.html"))
    if f"<{ELEMENT}" in path.read_text("utf-8")
]
SCRATCH = "notebooks/01_widgets.html"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
VALUES = [0.1, -3.0, 65504.0, 70000.0, 2.0**-9, 1e-45, -1e300, 2.0**122]


class Explorer:
    """An explorer on an open page, used as a reader does."""

    def __init__(self, there: Any, index: int = 0) -> None:
        self.there, self.page = there, there.page
        self.element = self.page.locator(ELEMENT).nth(index)
        self.number = self.element.get_by_role("textbox", name="Number, read as fp64")
        self.typed_bits = self.element.get_by_role("textbox", name="The same bits as text")
        self.format = self.element.get_by_role("combobox", name="Format")
        self.overflow = self.element.get_by_role("combobox", name="Too large becomes")
        self.buttons = self.element.get_by_role("toolbar").get_by_role("button")

    @property
    def state(self) -> dict[str, str]:
        state: dict[str, str] = json.loads(self.element.get_attribute("state"))
        return state

    @property
    def bits(self) -> str:
        return "".join(self.buttons.all_inner_texts())

    @property
    def status(self) -> str:
        return str(self.element.get_by_role("status").inner_text())

    def type(self, text: str) -> None:
        self.number.fill(text)
        self.number.press("Enter")

    def said(self, control: Any) -> str:
        """What is said beside a control, which must point to it."""
        return str(self.page.locator(f"[id='{control.get_attribute('aria-describedby')}']").inner_text())

    def fact(self, name: str) -> str:
        return str(
            self.element.locator("dl > div", has=self.page.get_by_text(name, exact=True)).locator("dd").inner_text()
        )

    def rows(self) -> list[list[str]]:
        rows: list[list[str]] = self.element.evaluate(
            "at => [...at.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))"
        )
        return rows

    def agrees(self, value: float, name: str) -> None:
        """All that is shown for a number in a format is what Python says."""
        fmt = FORMATS[name]
        code = encode(value, fmt, overflow="nonsaturating")
        stored = decode(code, fmt)
        below, above = (write_value(x) if x is not None else "none" for x in neighbours(stored, fmt))
        assert self.bits == f"{code:0{fmt.bits}b}", (name, value)
        assert self.typed_bits.input_value() == write_bits(code, fmt)
        assert self.status == f"{name} stores {write_value(value)} as {write_value(stored)}."
        assert (self.fact("next smaller"), self.fact("next larger")) == (below, above)
        assert self.fact("spacing") == write_value(spacing(stored, fmt))
        beyond = [
            write_value(decode(encode(math.inf, fmt, overflow=way), fmt)) for way in ("nonsaturating", "saturate")
        ]
        assert self.fact("beyond it") == f"{beyond[0]} (nonsaturating), {beyond[1]} (saturate)"
        assert self.fact("largest") == write_value(fmt.max)
        assert self.rows() == [list(table_row(value, other, "nonsaturating")) for other in FORMATS.values()]


@pytest.fixture
def explorer(open_page: Callable[..., Any], bases: dict[str, str]) -> Iterator[Explorer]:
    """The scratch page's first explorer; nothing may have gone wrong on the page in the end."""
    there = open_page(bases["http"], SCRATCH)
    yield Explorer(there)
    assert there.faults == []


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_it_agrees_with_python(open_page: Callable[..., Any], bases: dict[str, str], scheme: str) -> None:
    there = open_page(bases[scheme], SCRATCH)
    explorer = Explorer(there)
    explorer.agrees(0.1, "bf16")
    for value in VALUES if scheme == "http" else VALUES[:1]:
        explorer.type(repr(value))
        for name in FORMATS:
            explorer.format.select_option(name)
            explorer.agrees(value, name)
    assert there.faults == []


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("name", LESSONS)
def test_it_works_in_the_lessons(visit: Callable[..., Any], name: str, scheme: str) -> None:
    there = visit(name, scheme)
    for index in range(there.page.locator(ELEMENT).count()):
        explorer = Explorer(there, index)
        explorer.overflow.select_option("nonsaturating")
        explorer.type("0.3")
        explorer.format.select_option("fp16")
        explorer.agrees(0.3, "fp16")
    assert there.faults == []


def test_every_bit_can_be_flipped(explorer: Explorer) -> None:
    for name in ("e4m3", "nf4", "e8m0"):
        explorer.format.select_option(name)
        for index in range(FORMATS[name].bits):
            before = explorer.bits
            explorer.buttons.nth(index).click()
            flipped = before[:index] + "10"[int(before[index])] + before[index + 1 :]
            assert explorer.bits == explorer.state["bits"] == flipped
            assert explorer.number.input_value() == write_value(decode(int(flipped, 2), name))
            assert explorer.buttons.nth(index).get_attribute("aria-pressed") == (
                "true" if flipped[index] == "1" else "false"
            )


def test_bits_are_reached_and_flipped_with_keys(explorer: Explorer) -> None:
    focused = "document.activeElement.getAttribute('aria-label')"
    page = explorer.page
    explorer.overflow.focus()
    page.keyboard.press("Tab")
    seen = [page.evaluate(focused)]
    for key in ("ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home", "ArrowLeft"):
        page.keyboard.press(key)
        seen.append(page.evaluate(focused))
    places = [
        "sign bit 0",
        "exponent bit 7",
        "fraction bit 0",
        "fraction bit 0",
        "fraction bit 1",
        "sign bit 0",
        "sign bit 0",
    ]
    assert [label.partition(", ")[2] for label in seen] == places
    page.keyboard.type("1011")
    assert explorer.bits == "1011" + "110111001101"
    page.keyboard.press("Space")
    assert explorer.bits == "1011" + "010111001101"
    page.keyboard.press("Tab")
    assert explorer.typed_bits.evaluate("at => at === document.activeElement"), "the bits are one stop of the tab key"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == "0, exponent bit 4"


def test_neighbours_are_steps(explorer: Explorer) -> None:
    larger, smaller = (explorer.element.get_by_role("button", name=name) for name in ("next larger", "next smaller"))
    larger.click()
    explorer.agrees(0.1005859375, "bf16")
    smaller.click()
    smaller.click()
    explorer.agrees(0.099609375, "bf16")
    explorer.type("inf")
    assert larger.is_disabled() and larger.inner_text() == "none"
    smaller.click()
    explorer.agrees(FORMATS["bf16"].max, "bf16")


def test_overflow_is_as_chosen(explorer: Explorer) -> None:
    explorer.format.select_option("e4m3")
    explorer.type("1000")
    assert explorer.status == "e4m3 stores 1000 as nan."
    explorer.overflow.select_option("saturate")
    assert explorer.status == "e4m3 stores 1000 as 448."
    assert explorer.rows() == [list(table_row(1000, fmt, "saturate")) for fmt in FORMATS.values()]


def test_bits_can_be_pasted(explorer: Explorer) -> None:
    explorer.typed_bits.fill("0 01111111 1000000")
    explorer.typed_bits.press("Enter")
    explorer.agrees(1.5, "bf16")


BAD_NUMBERS = {
    "abc": "“abc” is no number",
    "": "Type a number",
    "1e": "is no number",
    "0,1": "Write a point: 0.1",
    "nan": "bf16 has a code for it",
    "-0": "-0 equals 0",
    "1e400": "beyond fp64",
    "1e-400": "closer to 0",
    "<b>1</b>": "“<b>1</b>” is no number",
}


def test_what_is_no_number_is_said_beside_the_field(explorer: Explorer) -> None:
    for text, message in BAD_NUMBERS.items():
        before = explorer.state
        explorer.type(text)
        assert message in explorer.said(explorer.number)
        assert explorer.number.get_attribute("aria-invalid") == "true"
        assert explorer.number.input_value() == text
        assert explorer.state == before and explorer.bits == before["bits"]
    explorer.type("2")
    assert explorer.said(explorer.number) == "" and explorer.number.get_attribute("aria-invalid") == "false"
    explorer.agrees(2, "bf16")


def test_what_is_not_quite_a_number_can_be_shown(explorer: Explorer) -> None:
    for text, bits in {"nan": "0111111111000000", "-0": "1000000000000000"}.items():
        explorer.type(text)
        explorer.element.get_by_role("button", name="Show it").click()
        assert explorer.bits == bits and explorer.said(explorer.number) == ""
        explorer.number.press("Enter")
        assert explorer.said(explorer.number) == "", "what is shown may be entered again"


def test_bad_bits_are_said_beside_the_field(explorer: Explorer) -> None:
    before = explorer.state
    for text, message in {"0011": "bf16 has 16 bits; here are 4.", "012": "0 and 1 only"}.items():
        explorer.typed_bits.fill(text)
        explorer.typed_bits.press("Enter")
        assert message in explorer.said(explorer.typed_bits)
        assert explorer.state == before and explorer.bits == before["bits"]


def test_a_format_without_nan_is_not_chosen_for_one(explorer: Explorer) -> None:
    explorer.typed_bits.fill("0111111111000001")
    explorer.typed_bits.press("Enter")
    before = explorer.state
    explorer.format.select_option("e2m1")
    assert explorer.said(explorer.format) == "e2m1 has no code for NaN."
    assert explorer.format.input_value() == "bf16" and explorer.state == before


BAD_STATES = {
    "format": (
        '{"number":"1","format":"fp12","overflow":"saturate","bits":"0"}',
        "Unknown format fp12; there are fp64",
    ),
    "overflow": ('{"number":"1","format":"e2m1","overflow":"wrap","bits":"0000"}', "Unknown overflow wrap"),
    "number": ('{"number":"x","format":"e2m1","overflow":"saturate","bits":"0000"}', "“x” is no number"),
    "bits": ('{"number":"1","format":"e2m1","overflow":"saturate","bits":"00"}', "e2m1 has 4 bits; here are 2"),
    "text": ("no state at all", "Unknown format undefined"),
}
BESIDE = {"overflow": "overflow", "number": "number", "bits": "typed_bits"}


def test_a_bad_state_from_elsewhere_is_said_and_not_taken(explorer: Explorer) -> None:
    explorer.type("3")
    for name, (state, message) in BAD_STATES.items():
        explorer.element.evaluate("(at, state) => at.setAttribute('state', state)", state)
        assert message in explorer.said(getattr(explorer, BESIDE.get(name, "format")))
        explorer.agrees(3, "bf16")
        assert explorer.state["number"] == "3"


def test_without_scripts_the_table_stays(open_page: Callable[..., Any], bases: dict[str, str]) -> None:
    there = open_page(bases["file"], SCRATCH, java_script_enabled=False)
    for index, (value, overflow) in enumerate([(0.1, "nonsaturating"), (-3e8, "saturate")]):
        table = there.page.locator(ELEMENT).nth(index).locator("table")
        assert table.is_visible() and write_value(value) in table.locator("caption").inner_text()
        texts = [text.split("\t") for text in table.locator("tbody").inner_text().splitlines()]
        rows = [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in texts]
        assert rows == [list(table_row(value, fmt, overflow)) for fmt in FORMATS.values()]
    assert there.page.locator(f"{ELEMENT} input").count() == 0


def test_explorers_of_a_page_do_not_disturb_each_other(explorer: Explorer) -> None:
    other = Explorer(explorer.there, 1)
    assert other.status == "e4m3 stores -300000000 as -448."
    explorer.type("5")
    assert other.status == "e4m3 stores -300000000 as -448."
    ids = explorer.page.evaluate("[...document.querySelectorAll('[id]')].map(at => at.id)")
    assert len(ids) == len(set(ids))


def test_only_pages_with_a_widget_load_its_script(scratch: Path) -> None:
    assert "hwl-number-format-explorer.js" in (scratch / SCRATCH).read_text("utf-8")
    for name in ("book/index.html", "search.html"):
        text = (scratch / name).read_text("utf-8")
        assert "hwl-number-format" not in text and "hwl-widgets" not in text, name
    page = (scratch / SCRATCH).read_text("utf-8")
    assert "widget-view" not in page and "widget-state" not in page


def test_it_is_usable_within_a_second(open_page: Callable[..., Any], bases: dict[str, str]) -> None:
    ready = "performance.getEntriesByType('navigation')[0].domContentLoadedEventStart"
    times = [open_page(bases["http"], SCRATCH).page.evaluate(ready) for _ in range(2)]
    assert min(times) < 1000, times


def test_a_saved_page_goes_on_where_its_reader_left(
    explorer: Explorer, scratch: Path, bases: dict[str, str], open_page: Callable[..., Any]
) -> None:
    explorer.type("0.25")
    explorer.format.select_option("e5m2")
    (scratch / "notebooks" / "saved.html").write_text(explorer.page.content(), "utf-8")
    Explorer(open_page(bases["file"], "notebooks/saved.html")).agrees(0.25, "e5m2")


@pytest.mark.parametrize(("options", "least"), [({}, 24), (PHONE, 44)], ids=["mouse", "finger"])
def test_what_is_pressed_is_large_enough(
    open_page: Callable[..., Any], bases: dict[str, str], options: dict[str, Any], least: int
) -> None:
    explorer = Explorer(open_page(bases["http"], SCRATCH, **options))
    explorer.format.select_option("fp64")
    sizes = explorer.element.locator("button, input, select").evaluate_all(
        "all => all.map(at => at.getBoundingClientRect()).map(box => Math.min(box.width, box.height))"
    )
    assert len(sizes) == 64 + 2 + 2 + 2 and min(sizes) >= least, min(sizes)


def test_a_finger_flips_bits_on_a_phone(open_page: Callable[..., Any], bases: dict[str, str]) -> None:
    there = open_page(bases["file"], SCRATCH, **PHONE)
    explorer = Explorer(there)
    explorer.buttons.first.tap()
    explorer.agrees(-0.10009765625, "bf16")
    explorer.format.select_option("fp64")
    edges = explorer.element.locator("button, input, select").evaluate_all(
        "all => all.map(at => at.getBoundingClientRect().right)"
    )
    assert max(edges) <= PHONE["viewport"]["width"]
    assert there.faults == []


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
def test_axe_finds_nothing(open_page: Callable[..., Any], bases: dict[str, str], options: dict[str, Any]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    there = open_page(bases["http"], SCRATCH, **options)
    explorer = Explorer(there)
    rules = {"label-content-name-mismatch": {"enabled": True}, "target-size": {"enabled": True}}

    def violations() -> list[str]:
        found = (
            Axe()
            .run(there.page, ELEMENT, {"resultTypes": ["violations"], "rules": rules, "preload": False})
            .response["violations"]
        )
        return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]

    assert violations() == []
    explorer.format.select_option("fp64")
    explorer.type("nan")
    explorer.typed_bits.fill("01")
    explorer.typed_bits.press("Enter")
    assert violations() == []
    assert there.faults == []
