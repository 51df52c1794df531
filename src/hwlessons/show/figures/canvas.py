"""The frame of every figure: labelled axes in the book's look, a caption that says where the numbers come from."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, get_args

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from hwlessons.show.figures import style
from hwlessons.show.figures.describe import describe
from hwlessons.show.figures.svg import render
from hwlessons.show.html import element, where_html
from hwlessons.show.machine import provenance
from hwlessons.show.output import Shown

Scale = Literal["linear", "log", "log2"]
_WITH_UNIT = re.compile(r"\S.*\(.+\)")


@dataclass(eq=False)
class FigureView(Shown):
    """A figure, as shown.

    Attributes:
        svg: the drawing, an `<svg>` element that takes the page's text colour.
        alt: what it shows, in words.
    """

    svg: str = field(kw_only=True, repr=False)
    alt: str = field(kw_only=True)


class Canvas:
    """A figure while it is drawn: `axes` is matplotlib's, `view` is set when it has been shown."""

    def __init__(self, title: str, height_inches: float) -> None:
        self.drawn = Figure(figsize=(style.WIDTH_INCHES, height_inches), layout="constrained")
        self.axes: Axes = self.drawn.subplots()
        self.title = title
        self.alt: str | None = None
        self.summary = ""
        self.legend_adds_height = False
        self.view: FigureView | None = None


@contextmanager
def figure(
    title: str,
    *,
    x_label: str,
    y_label: str,
    kind: str,
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
    alt: str | None = None,
    on: Mapping[str, Any] | None = None,
) -> Iterator[Axes]:
    """Gives matplotlib axes in the book's look, and shows the figure when the block ends.

    `with show.figure("Roofline", x_label="arithmetic intensity (FLOP/byte)", ...) as axes: axes.plot(...)`

    Args:
        title: what the figure shows; it becomes the caption.
        x_label: quantity and unit, "sequence length (tokens)"; "(1)" for a ratio.
        y_label: the same for the other axis.
        kind: "computed", "traced", "simulated", "measured" or "recorded".
        x_scale: "linear", "log" (powers of ten) or "log2" (powers of two).
        y_scale: the same for the other axis.
        alt: what the figure shows, in words; by default made from what was plotted.
        on: the machine's facts, for recorded numbers; by default the registered machine.

    Raises:
        ValueError: if a label lacks its unit, a scale or kind is unknown, a series has no label where there are
            several, nothing was plotted, or something was plotted that cannot be put in words and `alt` is missing.
    """
    with canvas(title, kind=kind, height_inches=style.HEIGHT_INCHES, on=on) as frame:
        name_axes(frame.axes, x_label, y_label, x_scale, y_scale)
        frame.alt = alt
        yield frame.axes


@contextmanager
def canvas(title: str, *, kind: str, height_inches: float, on: Mapping[str, Any] | None) -> Iterator[Canvas]:
    """As `figure`, for charts that name their axes themselves."""
    if not title.strip():
        raise ValueError("title is empty; a figure says what it shows")
    where = provenance(kind, on)
    with matplotlib.rc_context(style.settings()):
        frame = Canvas(title, height_inches)
        yield frame
        frame.view = _finish(frame, where)


def name_axes(axes: Axes, x_label: str, y_label: str, x_scale: Scale = "linear", y_scale: Scale = "linear") -> None:
    """Labels both axes and sets their scales.

    Raises:
        ValueError: if a label lacks its unit or a scale is unknown.
    """
    check_label("x_label", x_label)
    check_label("y_label", y_label)
    set_scales(axes, x_scale, y_scale)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label, rotation_mode="anchor")


def set_scales(axes: Axes, x_scale: Scale, y_scale: Scale) -> None:
    """Sets the scales of both axes, with tick labels in plain text.

    Raises:
        ValueError: if a scale is unknown.
    """
    for name, axis, set_scale, scale in (
        ("x", axes.xaxis, axes.set_xscale, x_scale), ("y", axes.yaxis, axes.set_yscale, y_scale),
    ):  # fmt: skip
        if scale not in get_args(Scale):
            raise ValueError(f"{name}_scale={scale!r} is unknown; it is one of {', '.join(get_args(Scale))}")
        if scale != "linear":
            set_scale("log", base=2 if scale == "log2" else 10)
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(style.power_text if scale == "log2" else style.tick_text))


def check_label(what: str, label: str) -> None:
    """Refuses an axis label without a unit."""
    if not _WITH_UNIT.fullmatch(label):
        raise ValueError(f'{what}={label!r} lacks its unit; write "quantity (unit)", and "(1)" for a ratio')


def _finish(frame: Canvas, where: str) -> FigureView:
    axes = frame.axes
    alt = frame.alt or describe(axes, frame.title, frame.summary)
    _place_legend(frame)
    salt = hashlib.sha256(f"{frame.title}{alt}".encode()).hexdigest()
    svg = render(frame.drawn, salt)
    shown = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" style="{_SVG_STYLE}" ', 1)
    caption = element("figcaption", f"{escape(frame.title)} {where_html(where)}", class_="hwl-caption")
    html = element("figure", shown + caption, class_="hwl-figure", style="margin:0.5em 0;max-width:36em")
    text = f"Figure: {frame.title} ({where})\n    {alt}"
    return FigureView(html, text, svg=svg, alt=alt)._emit()


_SVG_STYLE = "display:block;width:100%;height:auto;color:inherit;font-family:inherit"


def _place_legend(frame: Canvas) -> None:
    handles, labels = frame.axes.get_legend_handles_labels()
    if len(labels) < 2 or frame.axes.get_legend():
        return
    widest = max(map(len, labels))
    fitting = max(1, int((72 * style.WIDTH_INCHES - 10) / (35 + 4.5 * widest)))
    num_rows = math.ceil(len(labels) / fitting)
    columns = math.ceil(len(labels) / num_rows)
    if frame.legend_adds_height:
        width, height = frame.drawn.get_size_inches()
        frame.drawn.set_size_inches(width, height + 0.2 * num_rows)
    # matplotlib fills a legend column by column; people read row by row
    order = sorted(range(len(labels)), key=lambda n: (n % columns, n // columns))
    frame.drawn.legend(
        [handles[n] for n in order], [labels[n] for n in order], loc="outside upper left", ncols=columns,
        columnspacing=1.2, borderaxespad=0,
    )  # fmt: skip
