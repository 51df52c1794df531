"""What all widgets share: a state that Python and JavaScript keep alike, and a form for readers without a kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import anywidget
import traitlets

from hwlessons.show.html import Grid, element
from hwlessons.show.widgets.scripts import Script, style

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


class StateError(ValueError, traitlets.TraitError):
    """A state of no use. As an error of traitlets' own it leaves the state as it was also when a browser sent it."""


class Widget(anywidget.AnyWidget):
    """A widget whose JavaScript does the arithmetic, so that it works on a page without a kernel.

    Shown in JupyterLab it is live and its `state` is kept alike on both sides. Its `text/html` form is an element with
    that state in an attribute and a plain table inside: a built page's script makes the element the widget, and where
    no script runs the table stays. A subclass gives `script`, `grid` and `checked`, and sets `state` once it is made.
    """

    script: ClassVar[Script]
    _css = style()
    state = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        if "_esm" not in type(self).__dict__:  # only now: a script's constants may take a moment to compute
            type(self)._esm = self.script.module
        super().__init__(**traits)

    @traitlets.validate("state")
    def _checked_state(self, proposal: Any) -> dict[str, Any]:
        try:
            return self.checked(proposal["value"])
        except ValueError as error:
            raise StateError(str(error)) from None

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state as it is.

        Raises:
            ValueError: if an entry is missing, unknown or of no use.
        """
        raise NotImplementedError

    def grid(self) -> tuple[Grid, str]:
        """The table for readers without a script, and its caption."""
        raise NotImplementedError

    def html(self) -> str:
        """The element of a built page."""
        grid, caption = self.grid()
        state = json.dumps(self.state, ensure_ascii=False)
        return element(self.script.element, grid.html(caption, caption), class_="hwl-widget", state=state)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        grid, caption = self.grid()
        return {**data, "text/plain": grid.text(caption), "text/html": self.html()}, metadata
