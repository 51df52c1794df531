"""Tells myst-nb what to do with the output types of this package, so that no page warns about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from docutils import nodes

from hwlessons.publish.solutions import EXERCISE_MIME
from hwlessons.show.claims import CLAIM_MIME
from hwlessons.show.machine import MACHINE_MIME

RECORDS = (MACHINE_MIME, CLAIM_MIME, EXERCISE_MIME)


class HwlessonsMimeRenderer:
    """A myst-nb renderer: records for machines draw nothing, and images take their alt text from the output."""

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = ()

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[nodes.Element] | None:
        """Returns what to draw for one output, or None to leave it to myst-nb."""
        if data.mime_type in RECORDS:
            return []
        if data.mime_type.startswith("image/") and not inline:
            alt = data.output_metadata.get(data.mime_type, data.output_metadata).get("alt")
            if alt:
                drawn = renderer.render_image(data)
                for image in (image for node in drawn for image in node.findall(nodes.image)):
                    image["alt"] = alt
                return drawn
        return None
