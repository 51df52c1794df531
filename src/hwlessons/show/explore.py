"""Controls that run a demonstration again with other choices: live in JupyterLab, absent from a built page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hwlessons.show.output import is_notebook
from hwlessons.show.progress import is_build


def explore(draw: Callable[..., object], **choices: Sequence[Any]) -> None:
    """Shows a control for each argument of `draw`, and what it shows for the choice made.

    A built page has no kernel to compute with: there, in plain Python and where ipywidgets is missing, nothing is
    shown and `draw` is not called. Show the main cases in a figure beside it.

    Args:
        draw: called with one of the choices for each argument whenever the reader makes one; shows something itself.
        **choices: for each argument of `draw`, the values that can be chosen; the first is where it starts. Text
            becomes a list, everything else a slider.

    Raises:
        ValueError: if `draw` cannot be called, or there are no choices, or an argument has none.
    """
    if not callable(draw):
        raise ValueError(f"draw must be a function, got {draw!r}")
    empty = [name for name, values in choices.items() if len(values) == 0]
    if not choices or empty:
        raise ValueError(f"every argument needs at least one choice, got none for {', '.join(empty) or 'anything'}")
    if is_build() or not is_notebook():
        return
    try:
        import ipywidgets
    except ImportError:
        return

    def control(name: str, values: Sequence[Any]) -> Any:
        options = [(value if isinstance(value, str) else f"{value:,}", value) for value in values]
        look = {"value": values[0], "description": name.replace("_", " "), "style": {"description_width": "initial"}}
        if isinstance(values[0], str):
            return ipywidgets.Dropdown(options=options, **look)
        # redrawing at every position that a slider passes would queue up behind the hand
        return ipywidgets.SelectionSlider(options=options, continuous_update=False, **look)

    def draw_chosen(**chosen: Any) -> None:
        draw(**chosen)

    ipywidgets.interact(draw_chosen, **{name: control(name, values) for name, values in choices.items()})
