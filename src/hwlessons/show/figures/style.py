"""The look of the book's figures: colours, patterns, markers and dashes, sizes and tick labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cycler import cycler

INK = "#010203"
"""Stands for the page's text colour while a figure is drawn; no palette colour, so it can be told apart."""

WIDTH_INCHES = 360 / 72
HEIGHT_INCHES = 232 / 72


class Mark(NamedTuple):
    """How one series is drawn: told apart by pattern, marker and dash as well as by colour."""

    colour: str
    hatch: str
    marker: str
    dash: Any


# At least 3:1 against white and against the dark page; the order keeps neighbours apart for colour-blind readers.
MARKS = (
    Mark("#0072B2", "", "o", "-"),
    Mark("#D55E00", "////", "s", (0, (5, 2))),
    Mark("#009E73", "\\\\\\\\", "^", (0, (1, 1.5))),
    Mark("#B8609A", "xxxx", "D", (0, (5, 2, 1, 2))),
    Mark("#B07D00", "||||", "v", (0, (8, 2))),
    Mark("#4A90D9", "----", "P", (0, (3, 1, 1, 1, 1, 1))),
    Mark("#8C6D46", "//", "X", (0, (2, 2))),
    Mark("#7F7F7F", "++", "*", (0, (1, 3))),
)

_CATEGORY_ORDER = (
    "parameters", "gradients", "optimizer_state", "saved_activations",
    "cached_casts", "inputs", "buffers", "temporaries",
)  # fmt: skip
CATEGORY_MARKS = dict(zip(_CATEGORY_ORDER, MARKS, strict=True))
"""A category of memory looks the same in every figure of the book."""


def marks_for(labels: Sequence[str]) -> list[Mark]:
    """The looks of a figure's series: a category of memory has its own, the others take what is left, in order.

    Raises:
        ValueError: if there are more series than looks.
    """
    if len(labels) > len(MARKS):
        raise ValueError(f"a figure shows at most {len(MARKS)} series, not {len(labels)}; make a table or two figures")
    own = [CATEGORY_MARKS.get(label.replace(" ", "_")) for label in labels]
    free = iter([mark for mark in MARKS if mark not in own])
    return [mark or next(free) for mark in own]


def settings() -> Any:
    """Matplotlib's settings for a figure of the book."""
    ink = (
        "text.color",
        "axes.edgecolor",
        "axes.labelcolor",
        "xtick.color",
        "ytick.color",
        "hatch.color",
        "lines.color",
    )
    return {
        **dict.fromkeys(ink, INK),
        "font.size": 10,
        "axes.labelsize": 10,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "legend.handletextpad": 0.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": INK,
        "grid.alpha": 0.15,
        "grid.linewidth": 0.6,
        "hatch.linewidth": 0.5,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "patch.linewidth": 0.8,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "axes.prop_cycle": cycler(
            color=[m.colour for m in MARKS], marker=[m.marker for m in MARKS], linestyle=[m.dash for m in MARKS]
        ),
        "svg.fonttype": "none",
    }


def tick_text(value: float, _position: int | None = None) -> str:
    """A tick label without mathematical typesetting: "4,096", "0.25", "1e-08"."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        return f"{value:,.10g}"
    return f"{value:.3g}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_text(value: float, _position: int | None = None) -> str:
    """A tick label of a scale in powers of two: "2⁻¹⁴" and "2²⁰" where the number itself would be long."""
    if value > 0 and not 0.1 < value < 2**17 and math.log2(value).is_integer():
        return "2" + str(int(math.log2(value))).translate(_SUPERSCRIPTS)
    return tick_text(value)
