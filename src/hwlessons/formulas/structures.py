"""What of a shape and a recipe decides a step's order of operators, apart from sizes; and a small example of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe

PRECISIONS = ("fp32", "autocast_bf16", "bf16")
RECOMPUTATION: dict[str, dict[str, bool]] = {
    "none": {},
    "blocks": {"checkpointing": True},
    "all but matmuls": {"checkpointing": True, "keep_matmuls": True},
}
ATTENTION = ("fused", "materialised", "materialised one sequence")
# norm, mlp, positions, biases, tied
BLOCK_STYLES: dict[str, tuple[Any, ...]] = {
    "GPT-2": ("layernorm", "gelu", "learned", True, True),
    "Pythia": ("layernorm", "gelu", "rotary", True, False),
    "Llama": ("rmsnorm", "swiglu", "rotary", False, False),
    "Llama 3.2": ("rmsnorm", "swiglu", "rotary", False, True),
}


def style_of(shape: TransformerShape) -> str:
    """The blocks' style, e.g. "layernorm gelu learned biases tied" or "rmsnorm swiglu rotary grouped"."""
    words: list[str] = [shape.norm, shape.mlp, shape.positions]
    words += ["biases"] * shape.has_biases + ["tied"] * shape.tied_embeddings
    return " ".join([*words, *["grouped"] * (shape.num_kv_heads < shape.num_heads)])


def structure_of(shape: TransformerShape, recipe: StepRecipe) -> str:
    """Style, precision, recomputation and attention, with " / " between: steps that differ in sizes only.

    Raises:
        ValueError: for what `all_structures` leaves out: adapters, dropout, a single layer, segments of several blocks,
            and materialised attention of one head or one token.
    """
    if recipe.adapters is not None:
        raise ValueError(f"adapters must be None here, got {recipe.adapters!r}")
    if recipe.dropout:
        raise ValueError(f"dropout must be 0 here, got {recipe.dropout!r}")
    if shape.num_layers < 2:
        raise ValueError(f"num_layers must be at least 2 here, got {shape.num_layers}")
    if recipe.blocks_per_segment > 1:
        raise ValueError(f"blocks_per_segment must be 1 here, got {recipe.blocks_per_segment}")
    attention: str = recipe.attention
    if attention == "materialised":
        if shape.num_heads < 2 or recipe.sequence < 2:
            sizes = f"num_heads {shape.num_heads} and sequence {recipe.sequence}"
            raise ValueError(f"materialised attention needs num_heads and sequence of at least 2 here, got {sizes}")
        attention += " one sequence" * (recipe.microbatch == 1)
    recomputed = "all but matmuls" if recipe.keep_matmuls else "blocks" if recipe.checkpointing else "none"
    return " / ".join((style_of(shape), recipe.precision, recomputed, attention))


def update_of(shape: TransformerShape, recipe: StepRecipe) -> str:
    """What of a step decides its optimizer's state and temporaries, apart from sizes."""
    itemsize = str(recipe.parameter_itemsize)
    return " / ".join((style_of(shape), itemsize, recipe.optimizer, recipe.implementation))


def styles() -> dict[str, TransformerShape]:
    """A small shape of every style that there is a table for, by `style_of`."""
    shapes = [
        TransformerShape(2, 16, 4, num_kv_heads, 48, 65, 16 * (block[2] == "learned"), *block)
        for block in BLOCK_STYLES.values()
        for num_kv_heads in ((4, 2) if block[0] == "rmsnorm" else (4,))
    ]
    return {style_of(shape): shape for shape in shapes}


def all_structures() -> Iterator[tuple[str, TransformerShape, StepRecipe]]:
    """Every structure with an example of it."""
    choices = product(styles().values(), PRECISIONS, RECOMPUTATION.values(), ATTENTION)
    for shape, precision, recomputation, attention in choices:
        microbatch = 1 if attention.endswith("one sequence") else 2
        options = {"attention": attention.split()[0], "precision": precision, **recomputation}
        recipe = StepRecipe(microbatch, 8, **options)  # type: ignore[arg-type]
        yield structure_of(shape, recipe), shape, recipe
