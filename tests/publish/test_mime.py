from __future__ import annotations

from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest
from docutils import nodes

from hwlessons.publish.mime import RECORDS, HwlessonsMimeRenderer


class Renderer:
    """The part of myst-nb's renderer that ours calls."""

    def render_image(self, data: Any) -> list[nodes.Element]:
        return [nodes.container("", nodes.image(uri="x.png"))]


def _data(mime: str, **metadata: Any) -> SimpleNamespace:
    return SimpleNamespace(mime_type=mime, output_metadata=metadata)


def test_myst_nb_finds_the_renderer() -> None:
    found = [entry.load() for entry in entry_points(group="myst_nb.mime_renderers") if entry.name == "hwlessons"]
    assert found == [HwlessonsMimeRenderer]


@pytest.mark.parametrize("mime", RECORDS)
@pytest.mark.parametrize("inline", [False, True])
def test_records_draw_nothing(mime: str, inline: bool) -> None:
    assert HwlessonsMimeRenderer.handle_mime(Renderer(), _data(mime), inline) == []


@pytest.mark.parametrize("metadata", [{"alt": "a curve"}, {"image/png": {"alt": "a curve"}}])
def test_an_image_takes_its_alt_text_from_the_output(metadata: dict[str, Any]) -> None:
    drawn = HwlessonsMimeRenderer.handle_mime(Renderer(), _data("image/png", **metadata), False)
    assert drawn is not None
    assert [image["alt"] for node in drawn for image in node.findall(nodes.image)] == ["a curve"]


@pytest.mark.parametrize("mime", ["image/png", "text/html", "application/unknown"])
def test_everything_else_is_left_to_myst_nb(mime: str) -> None:
    assert HwlessonsMimeRenderer.handle_mime(Renderer(), _data(mime), False) is None
