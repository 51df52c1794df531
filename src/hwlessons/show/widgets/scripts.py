"""The JavaScript of the widgets, put together from the files of `show/static` without a build step.

A widget's script is constants made by Python, then its files, of which the last defines `render({ model, el })`.
JupyterLab takes it as an ES module. A built page takes the same as a classic script, which works from `file://` too,
with `element.js` after it, which makes the widget's element draw itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hwlessons.facts.formats import formats_table
from hwlessons.show.widgets import pipeline_as_text, step_moments, vram_constants

STATIC = Path(__file__).parents[1] / "static"
STYLE_NAME = "hwl-widgets.css"


def _static(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def style() -> str:
    """The CSS of all widgets."""
    return _static("widgets.css")


@dataclass(frozen=True)
class Script:
    """The JavaScript of one widget.

    Attributes:
        element: the name of the HTML element that the widget is on a page.
        files: files of `show/static`, in order.
        constants: what Python puts in front of them, by name: JSON values, or what computes them when they are needed.
    """

    element: str
    files: tuple[str, ...]
    constants: Mapping[str, Any] | Callable[[], Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The name of the file that a page loads."""
        return f"{self.element}.js"

    @cached_property
    def source(self) -> str:
        """What both forms have in common."""
        given = self.constants() if callable(self.constants) else self.constants
        values = {name: json.dumps(value, separators=(",", ":")) for name, value in given.items()}
        constants = [f"const {name} = {value};" for name, value in values.items()]
        return "\n".join([*constants, *map(_static, self.files)])

    @cached_property
    def module(self) -> str:
        """The ES module that anywidget takes."""
        return f"{self.source}\nexport default {{ render }};\n"

    @cached_property
    def classic(self) -> str:
        """The script of a built page, to be loaded deferred."""
        body = f"{self.source}\n{_static('element.js')}\ndefineWidget({json.dumps(self.element)}, render);"
        return f'(() => {{\n"use strict";\n{body}\n}})();\n'


_LAYOUT = ("name", "bits", "exponent_bits", "fraction_bits", "bias", "specials", "has_sign", "has_subnormals")
_NEEDED = (*_LAYOUT, "max", "max_fields", "codebook")

NUMBER_FORMAT_EXPLORER = Script(
    "hwl-number-format-explorer",
    ("number_formats.js", "number_format_explorer.js"),
    {"FORMATS": {name: {key: entry[key] for key in _NEEDED} for name, entry in formats_table().items()}},
)
PIPELINE_SCHEDULE_VIEWER = Script(
    "hwl-pipeline-schedule-viewer",
    ("controls.js", "pipeline_schedules.js", "pipeline_schedule_viewer.js"),
    {
        "SCHEDULE_NAMES": pipeline_as_text.NAMES,
        "SCHEDULE_COUNTS": pipeline_as_text.COUNTS,
        "BACKWARD_RATIO": pipeline_as_text.RATIO,
        "SCHEDULE_COLUMNS": pipeline_as_text.COLUMNS,
    },
)
STEP_STEPPER = Script(
    "hwl-step-stepper",
    ("controls.js", "step_moments.js", "step_stepper.js"),
    lambda: {
        "STEP_DATA": step_moments.step_data(),
        "STEP_CATEGORIES": [category.replace("_", " ") for category in step_moments.CATEGORIES],
        "STEP_LAYERS": step_moments.LAYERS,
        "STEP_COLUMNS": step_moments.COLUMNS,
        "STEP_HOLDS": step_moments.HOLDS,
        "STEP_ACCUMULATION": step_moments.ACCUMULATION_STEPS,
        "STEP_BATCH": step_moments.GLOBAL_BATCH,
        "STEP_PLANS": step_moments.PLANS,
    },
)
VRAM_CALCULATOR = Script(
    "hwl-vram-calculator", ("controls.js", "vram_peak.js", "vram_calculator.js"), vram_constants.constants
)
SCRIPTS = (NUMBER_FORMAT_EXPLORER, PIPELINE_SCHEDULE_VIEWER, STEP_STEPPER, VRAM_CALCULATOR)


def scripts_of(html: str) -> list[Script]:
    """The scripts that a page needs: those of the widgets whose elements it holds."""
    return [script for script in SCRIPTS if re.search(rf"<{script.element}[\s>]", html)]
