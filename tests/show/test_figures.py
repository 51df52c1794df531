"""Figures: units enforced, readable without colour in both modes, described in words, small and always the same."""

import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwlessons import show
from hwlessons.show.figures import style, timeline
from hwlessons.show.figures.style import MARKS
from hwlessons.show.figures.svg import MOST_BYTES

LINE: dict[str, Any] = {
    "title": "Saved activations", "x_label": "sequence length (tokens)", "y_label": "size (MiB)", "kind": "computed",
}  # fmt: skip
BARS: dict[str, Any] = {"title": "Time by stage", "value_label": "time (ms)", "kind": "computed"}


def line(**options: Any) -> show.FigureView:
    return show.line([128, 256], {"fused": [1, 2], "materialised": [2, 8]}, **{**LINE, **options})


def bars(**options: Any) -> show.FigureView:
    return show.bars(["forward", "backward"], [40.04, 85], **{**BARS, **options})


def stacked_bars(**options: Any) -> show.FigureView:
    series = {"parameters": [4, 2], "optimizer_state": [8, 8]}
    return show.stacked_bars(["fp32", "mixed"], series, **{**BARS, **options})


def stacked_areas(**options: Any) -> show.FigureView:
    return show.stacked_areas([1, 2], {"parameters": [4, 4], "temporaries": [1, 2]}, **{**LINE, **options})


def memory_timeline(**options: Any) -> show.FigureView:
    made = SimpleNamespace(
        phases=("build", "forward", "backward", "optimizer", "forward"),
        steps=(0, 1, 1, 1, 2),
        category_bytes={"parameters": (1, 4, 4, 4, 4), "saved_activations": (0, 2048, 3072, 0, 1), "buffers": (0,) * 5},
    )
    return show.memory_timeline(made, **{"title": "Memory", "kind": "computed", **options})


def own(**options: Any) -> show.FigureView:
    with show.figure(**{**LINE, **options}) as axes:
        axes.scatter([1, 2], [3, 4])
    return line()


CHARTS: list[Callable[..., show.FigureView]] = [line, bars, stacked_bars, stacked_areas, memory_timeline]


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#14181e", "#121212"])
def test_every_colour_stands_out_on_light_and_dark_pages(ground: str) -> None:
    assert min(contrast(mark.colour, ground) for mark in MARKS) >= 3


def test_series_differ_without_colour() -> None:
    for look in ("hatch", "marker", "dash"):
        assert len({str(getattr(mark, look)) for mark in MARKS}) == len(MARKS)


def test_a_category_of_memory_always_looks_the_same_and_nothing_else_takes_its_look() -> None:
    looks = style.marks_for(["master weights", "gradients", "parameters"])
    assert looks[1:] == [style.CATEGORY_MARKS["gradients"], style.CATEGORY_MARKS["parameters"]]
    assert looks[0] not in looks[1:]


@pytest.mark.parametrize("chart", CHARTS)
def test_the_drawing_takes_the_pages_colour_and_font(chart: Callable[..., show.FigureView]) -> None:
    svg = chart().svg
    assert "currentColor" in svg and "<text" in svg
    assert not re.search(r"#000000|#ffffff|black|white|#010203|font-family|DejaVu", svg, re.IGNORECASE)
    assert not re.search(r"<style|<metadata|xlink| width=\"[\d.]+pt|<!DOCTYPE", svg)


@pytest.mark.parametrize("chart", CHARTS)
def test_the_drawing_is_the_same_every_time(chart: Callable[..., show.FigureView]) -> None:
    assert chart().svg == chart().svg


def test_two_figures_on_a_page_share_no_names() -> None:
    names = [set(re.findall(r'id="([^"]+)"', line(title=title).svg)) for title in ("one", "two")]
    assert names[0] and not names[0] & names[1]


def test_every_reference_has_its_target() -> None:
    svg = stacked_bars().svg
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg)
    assert used and {a or b for a, b in used} <= set(re.findall(r'id="([^"]+)"', svg))


def test_drawing_leaves_nothing_behind() -> None:
    code = (
        "import sys\nfrom hwlessons import show\n"
        "show.bars(['a'], [1], title='t', value_label='x (s)', kind='computed')\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules\n"
        "import matplotlib; assert matplotlib.rcParams['svg.fonttype'] == 'path'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("label", ["size", "", "(MiB)", "size ()", "size MiB"])
@pytest.mark.parametrize(
    ("chart", "what"),
    [(line, "x_label"), (line, "y_label"), (stacked_areas, "y_label"), (bars, "value_label"),
     (stacked_bars, "value_label"), (own, "x_label"), (own, "y_label")],
)  # fmt: skip
def test_a_label_without_its_unit_is_refused(chart: Callable[..., show.FigureView], what: str, label: str) -> None:
    with pytest.raises(ValueError, match=f"{what}=.* lacks its unit"):
        chart(**{what: label})


@pytest.mark.parametrize("chart", [*CHARTS, own])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "felt"}, "unknown"),
        ({"kind": "measured"}, "depends on the machine"),
        ({"title": " "}, "title is empty"),
    ],
)
def test_what_every_chart_refuses(chart: Callable[..., show.FigureView], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chart(**options)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: show.line([1], {}, **LINE), "nothing to plot"),
        (lambda: show.line([1, 2], {"a": [1]}, **LINE), "series 'a' has 1 values, 2 are needed"),
        (lambda: show.line([1], {"a": [float("nan")]}, **LINE), "not finite"),
        (lambda: show.line([1], {str(n): [n] for n in range(9)}, **LINE), "at most 8 series"),
        (lambda: show.bars([], [], **BARS), "nothing to plot"),
        (lambda: show.stacked_bars(["a"], {"x": [-1]}, **BARS), "must not be negative"),
        (lambda: line(x_scale="cubic"), "x_scale='cubic' is unknown; it is one of linear, log, log2"),
        (lambda: show.line(range(20_000), [n % 97 for n in range(20_000)], **LINE), "plot fewer points"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize(
    ("chart", "alt"),
    [
        (
            line,
            "Saved activations. size (MiB) against sequence length (tokens). fused: 1 at 128, 2 at 256. "
            "materialised: 2 at 128, 8 at 256.",
        ),
        (bars, "Time by stage. Bar chart of time (ms). Values: forward 40, backward 85."),
        (
            stacked_bars,
            "Time by stage. Bar chart of time (ms). parameters: fp32 4, mixed 2. optimizer state: fp32 8, mixed 8. "
            "Totals: fp32 12, mixed 10.",
        ),
        (
            stacked_areas,
            "Saved activations. size (MiB) against sequence length (tokens). parameters: 4 at 1, 4 at 2. "
            "temporaries: 1 at 1, 2 at 2.",
        ),
        (
            memory_timeline,
            "Memory. Live memory by category against operators run. "
            "Phases: build, forward, backward, optimizer, forward. "
            "Peak 3.00 KiB in backward: parameters 4 B, saved activations 3.00 KiB.",
        ),
    ],
)
def test_figures_are_described_in_words(chart: Callable[..., show.FigureView], alt: str) -> None:
    shown = chart()
    assert shown.alt == alt
    assert f'role="img" aria-label="{alt}"' in shown.html
    assert alt in shown.text


def test_long_series_are_described_by_their_ends_and_extremes() -> None:
    shown = show.line(list(range(50)), [(n - 20) ** 2 for n in range(50)], x_scale="linear", y_scale="log", **LINE)
    assert "size (MiB) (log scale) against" in shown.alt
    assert "50 points, from 400 to 841, lowest 0 at 20, highest 841 at 49" in shown.alt


def test_levels_are_described_too() -> None:
    assert "Marked: 80 GiB device at 5." in line(levels={"80 GiB device": 5}).alt
    assert "Marked: limit, 2.00 KiB." in memory_timeline(levels={"limit": 2048}).alt


def test_own_figures_are_described_and_labelled() -> None:
    with show.figure(**LINE) as axes:
        axes.plot([1, 2], [3, 4], label="roof")
        axes.scatter([1], [2.5], label="measured")
    with pytest.raises(ValueError, match="several series need"), show.figure(**LINE) as axes:
        axes.plot([1], [2])
        axes.plot([1], [3])
    with pytest.raises(ValueError, match="nothing that can be put in words"), show.figure(**LINE) as axes:
        pass
    with pytest.raises(ValueError, match="give alt="), show.figure(**LINE) as axes:
        axes.plot([1, 2], [3, 4])
        axes.imshow([[1, 2]])
    with show.figure(**LINE, alt="A chequered field.") as axes:
        axes.imshow([[1, 2]])


def test_an_error_inside_the_block_is_not_covered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), show.figure(**LINE):
        _ = 1 / 0
    assert capsys.readouterr().out == ""


def test_captions_say_where_numbers_come_from(machine: dict[str, Any]) -> None:
    shown = line(kind="measured", title="a < b")
    assert '<figcaption class="hwl-caption">a &lt; b <span' in shown.html
    assert "measured on Test CPU, torch 2.13.0</span></figcaption>" in shown.html


@pytest.mark.parametrize("length", [1, 2, 149, 150, 151, 5000])
def test_slices_keep_every_peak(length: int) -> None:
    totals = np.random.default_rng(0).integers(0, 10**9, length)
    starts, moments = timeline._slices(totals)
    assert starts[0] == 0 and len(starts) == min(length, timeline.NUM_SLICES)
    assert totals[moments].max() == totals.max()
    ends = [*starts[1:], length]
    assert all(totals[m] == totals[a:b].max() for a, b, m in zip(starts, ends, moments, strict=True))


def test_a_long_timeline_stays_small() -> None:
    random = np.random.default_rng(0)
    columns = {name: tuple(random.integers(0, 2**30, 20_000).tolist()) for name in style.CATEGORY_MARKS}
    made = SimpleNamespace(phases=("forward",) * 20_000, steps=(1,) * 20_000, category_bytes=columns)
    shown = show.memory_timeline(made, title="Memory", kind="computed")
    assert len(shown.svg.encode()) < MOST_BYTES


def test_an_empty_timeline_is_refused() -> None:
    made = SimpleNamespace(phases=(), steps=(), category_bytes={"parameters": ()})
    with pytest.raises(ValueError, match="timeline is empty"):
        show.memory_timeline(made, title="Memory", kind="computed")


@pytest.mark.parametrize(
    ("value", "text"), [(2**-14, "2⁻¹⁴"), (0.25, "0.25"), (1024, "1,024"), (2**20, "2²⁰"), (3e-5, "3e-05"), (0, "0")]
)
def test_powers_of_two_are_written_as_powers_where_they_are_long(value: float, text: str) -> None:
    assert style.power_text(value) == text
