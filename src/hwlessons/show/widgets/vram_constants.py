"""What the VRAM calculator's JavaScript takes from Python: the table of moments, shapes, devices, words."""

from __future__ import annotations

from typing import Any

from hwlessons.facts.hardware import load_accelerators
from hwlessons.facts.shapes import load_shapes
from hwlessons.formulas.liveness import CATEGORIES
from hwlessons.formulas.moments import moment_table
from hwlessons.formulas.structures import BLOCK_STYLES, styles
from hwlessons.show.widgets import vram_as_text as text


def constants() -> dict[str, Any]:
    """Constants by name, as JSON values."""
    of_style = {
        (shape.norm, shape.mlp, shape.positions, shape.has_biases, shape.tied_embeddings): name.removesuffix(" grouped")
        for name, shape in styles().items()
    }
    devices = load_accelerators().values()
    return {
        "MOMENTS": moment_table(),
        "CATEGORIES": CATEGORIES,
        "MODELS": {name: text.shape_entries(shape) for name, shape in load_shapes().items()},
        "STYLES": {name: of_style[block] for name, block in BLOCK_STYLES.items()},
        "DEVICES": {card.name: [card.capacity_bytes, text.memory(card)] for card in devices},
        "CHOICES": text.CHOICES,
        "COUNTS": text.COUNTS,
        "LABELS": text.LABELS,
        "SIZES": text.SIZES,
        "CATEGORY_NAMES": text.CATEGORY_NAMES,
        "SHARED": text.SHARED,
        "MOST_SHARED": text.MOST_SHARED,
        "PLACES": text.PLACES,
        "PHASES": text.PHASES,
        "VRAM_COLUMNS": text.COLUMNS,
        "START": text.START,
    }
