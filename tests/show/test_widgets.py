"""What all widgets promise; and the number-format explorer in Python: its state, what it refuses, its table."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from hwlessons import show
from hwlessons.facts.formats import FORMATS, decode, encode
from hwlessons.show.widgets import Widget
from hwlessons.show.widgets.numbers_as_text import write_short, write_value
from hwlessons.show.widgets.scripts import NUMBER_FORMAT_EXPLORER, SCRIPTS, STATIC, Script, scripts_of, style
from hwlessons.show.widgets.widget import WIDGET_MIME


class Page(HTMLParser):
    """An HTML fragment: its elements' attributes, and its table as texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.attributes: dict[str, dict[str, str | None]] = {}
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes[tag] = dict(attrs)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.replace("\N{NO-BREAK SPACE}", " ")


def test_it_begins_with_a_tenth_in_bf16() -> None:
    explorer = show.NumberFormatExplorer()
    assert (explorer.value, explorer.format, explorer.overflow) == (0.1, "bf16", "nonsaturating")
    assert explorer.stored == 0.10009765625
    assert (explorer.code, explorer.bits) == (0x3DCD, "0011110111001101")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("value", [0.1, -3, 1e30, -0.0, math.inf])
def test_it_stores_what_the_formats_say(name: str, value: float) -> None:
    explorer = show.NumberFormatExplorer(value, name, overflow="saturate")
    assert explorer.code == encode(value, name, overflow="saturate")
    assert len(explorer.bits) == FORMATS[name].bits


def test_its_properties_move_it() -> None:
    explorer = show.NumberFormatExplorer(70000, "fp16")
    assert explorer.stored == math.inf
    explorer.overflow = "saturate"
    assert explorer.stored == 65504
    explorer.format = "e4m3"
    assert (explorer.value, explorer.stored) == (70000, 448)
    explorer.value = -0.0
    assert explorer.bits == "10000000"
    explorer.bits = "0 0111 1_00"
    assert (explorer.value, explorer.stored, explorer.code) == (1.5, 1.5, 0x3C)


def test_a_nan_keeps_the_bits_that_were_set() -> None:
    explorer = show.NumberFormatExplorer(1, "fp16")
    explorer.bits = "1111110000000001"
    assert math.isnan(explorer.value) and explorer.code == 0xFC01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.1, "fp12"), "unknown number format 'fp12'; there are fp64, fp32"),
        (("0.1", "bf16"), "value must be a number"),
        ((True, "bf16"), "value must be a number"),
        ((10**400, "bf16"), "within the range of fp64"),
        ((math.nan, "e2m1"), "e2m1 has no code for NaN"),
    ],
)
def test_what_it_cannot_show_is_refused(arguments: tuple[Any, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        show.NumberFormatExplorer(*arguments)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("format", "fp12", "unknown number format 'fp12'"),
        ("overflow", "wrap", "overflow must be saturate or nonsaturating, got 'wrap'"),
        ("bits", "0011", "bits of bf16 must be 16 digits 0 or 1, got 4"),
        ("value", "abc", "value must be a number"),
        ("state", {}, "the state has no entries; it must have number, format, overflow, bits"),
        ("state", {"number": "x", "format": "e2m1", "overflow": "saturate", "bits": "0000"}, "could not convert"),
        (
            "state",
            {"number": "0", "format": "e2m1", "overflow": "wrap", "bits": "0000"},
            "overflow must be .* got 'wrap'",
        ),
    ],
)
def test_a_bad_property_leaves_it_as_it_was(name: str, value: Any, message: str) -> None:
    explorer = show.NumberFormatExplorer()
    before = explorer.state
    with pytest.raises(ValueError, match=message):
        setattr(explorer, name, value)
    assert explorer.state == before


def test_what_the_reader_does_can_be_observed() -> None:
    explorer, seen = show.NumberFormatExplorer(), []
    explorer.observe(lambda change: seen.append(change["new"]["bits"]), "state")
    explorer.set_state({"state": {**explorer.state, "number": "-1", "bits": "1011111110000000"}})
    assert seen == ["1011111110000000"] and explorer.stored == -1


WIDGETS = {
    kind.script.element: kind for kind in vars(show).values() if isinstance(kind, type) and issubclass(kind, Widget)
}
every_widget = pytest.mark.parametrize("kind", WIDGETS.values(), ids=WIDGETS)


def test_the_book_has_the_script_of_every_widget() -> None:
    assert list(SCRIPTS) == [kind.script for kind in WIDGETS.values()]


@every_widget
def test_both_forms_are_shown(kind: Any) -> None:
    widget = kind()
    data, _ = widget._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", WIDGET_MIME}
    page = Page(data["text/html"])
    assert json.loads(page.attributes[kind.script.element]["state"] or "") == widget.state
    assert "caption" in page.attributes and page.attributes["th"]["scope"] == "row"
    for row in page.rows[1:]:
        assert all(cell in data["text/plain"] for cell in row)


@every_widget
def test_what_the_browser_sets_is_checked(kind: Any) -> None:
    widget = kind()
    before = widget.state
    with pytest.raises(ValueError, match="the state has no entries; it must have"):
        widget.set_state({"state": {}})
    assert widget.state == before


def test_the_explorers_text_has_the_stored_value() -> None:
    data, _ = show.NumberFormatExplorer()._repr_mimebundle_()
    assert "0.10009765625" in data["text/plain"]


@pytest.mark.parametrize(("value", "name"), [(0.1, "bf16"), (-1e9, "e4m3"), (math.nan, "fp16"), (5e-324, "fp64")])
def test_the_page_holds_the_state_and_a_correct_table(value: float, name: str) -> None:
    explorer = show.NumberFormatExplorer(value, name)
    page = Page(explorer.html())
    assert json.loads(page.attributes["hwl-number-format-explorer"]["state"] or "") == explorer.state
    assert "caption" in page.attributes and page.attributes["th"]["scope"] == "row"
    head, *rows = page.rows
    assert head[:2] == ["format", "stored"]
    assert [row[0] for row in rows] == list(FORMATS)
    for row in rows:
        fmt = FORMATS[row[0]]
        if math.isnan(value) and not fmt.has_nan:
            assert row[1] == "has no nan"
            continue
        code = encode(value, fmt, overflow="nonsaturating")
        assert float(row[1]) == pytest.approx(decode(code, fmt), abs=0, rel=0, nan_ok=True)
        assert int(row[-1].replace(" ", ""), 2) == code


def test_a_page_gets_the_scripts_of_its_widgets_only() -> None:
    for kind in WIDGETS.values():
        assert scripts_of(kind().html()) == [kind.script]
    assert scripts_of("<p>&lt;hwl-number-format-explorer&gt; <hwl-number-format-explorers></p>") == []


BYTES_ADDED = {
    "hwl-number-format-explorer": 32_000,
    "hwl-pipeline-schedule-viewer": 30_000,
    "hwl-step-stepper": 150_000,
    "hwl-vram-calculator": 400_000,
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.element)
def test_it_adds_little_to_its_page(script: Script) -> None:
    added = len(script.classic.encode()) + len(style().encode())
    assert added <= BYTES_ADDED[script.element], added


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.element)
def test_both_scripts_hold_the_same_source(script: Script) -> None:
    assert script.module.startswith(script.source) and script.source in script.classic
    assert re.findall(r"^(?:export|import) .*", script.module, re.MULTILINE) == ["export default { render };"]
    assert not re.search(r"^(?:export|import) ", script.classic, re.MULTILINE)


def test_scripts_and_style_name_no_other_host() -> None:
    for path in STATIC.iterdir():
        assert not re.search(r"https?:|//[a-z]+\.|\beval\b|\bimport\b", path.read_text("utf-8")), path.name


def test_nothing_moves() -> None:
    assert not re.search(r"transition|animation|@keyframes|scroll-behavior", style())


def test_a_widget_without_a_kernel_must_say_how_it_looks() -> None:
    class Bare(Widget):
        script = NUMBER_FORMAT_EXPLORER

    bare = Bare()
    for missing in (bare.grid, lambda: bare.checked({})):
        with pytest.raises(NotImplementedError):
            missing()


@every_widget
def test_it_needs_no_torch(kind: Any) -> None:
    code = f"import sys; from hwlessons import show; show.{kind.__name__}(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (65504.0, "65504"), (1e-7, "1e-7"), (1e22, "1e+22"), (-0.0, "-0"), (math.nan, "nan"), (None, "—")],
)
def test_values_are_written(value: float | None, text: str) -> None:
    assert write_value(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.03125, "3.13e-2"), (0.0, "0"), (9.999e-5, "1.00e-4"), (math.inf, "—"), (None, "—")]
)
def test_short_numbers_are_written(value: float | None, text: str) -> None:
    assert write_short(value) == text
