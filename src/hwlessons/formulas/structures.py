"""What of a shape and a recipe decides a step's order of operators, apart from sizes; and a small example of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.adapters import Adapters
from hwlessons.formulas.step_recipe import StepRecipe

PRECISIONS = ("fp32", "autocast_bf16", "bf16")
RECOMPUTATION: dict[str, dict[str, bool]] = {
    "none": {},
    "blocks": {"checkpointing": True},
    "all but matmuls": {"checkpointing": True, "keep_matmuls": True},
}
ADAPTERS = ("none", "LoRA")
ATTENTION = ("fused", "materialised", "materialised one sequence")
# norm, mlp, positions, biases, tied
BLOCK_STYLES: dict[str, tuple[Any, ...]] = {
    "GPT-2": ("layernorm", "gelu", "learned", True, True),
    "Pythia": ("layernorm", "gelu", "rotary", True, False),
    "Llama": ("rmsnorm", "swiglu", "rotary", False, False),
    "Llama 3.2": ("rmsnorm", "swiglu", "rotary", False, True),
}


def adapter_options(name: str, rank: int) -> dict[str, Any]:
    """Options of a `StepRecipe` for one of `ADAPTERS`: "LoRA" has adapters at query and value of every block.

    Source: Hu et al. 2021 (arXiv:2106.09685), section 7.1: query and value together do best for their size.
    """
    return {} if name == "none" else {"adapters": Adapters(rank, ("query", "value"))}


def adapters_of(recipe: StepRecipe) -> str:
    """Which of `ADAPTERS` a recipe has.

    Raises:
        ValueError: for others.
    """
    rank = recipe.adapters.rank if recipe.adapters else 1
    for name in ADAPTERS:
        if recipe.adapters == adapter_options(name, rank).get("adapters") and recipe.base_format == "full":
            return name
    what = f"{recipe.adapters!r} on a {recipe.base_format} base"
    raise ValueError(f"adapters must be none, or at query and value on a full base, here; got {what}")


def style_of(shape: TransformerShape) -> str:
    """The blocks' style, e.g. "layernorm gelu learned biases tied" or "rmsnorm swiglu rotary grouped"."""
    words: list[str] = [shape.norm, shape.mlp, shape.positions]
    words += ["biases"] * shape.has_biases + ["tied"] * shape.tied_embeddings
    return " ".join([*words, *["grouped"] * (shape.num_kv_heads < shape.num_heads)])


def structure_of(shape: TransformerShape, recipe: StepRecipe) -> str:
    """Style, precision, recomputation, attention and adapters, with " / " between: steps that differ in sizes only.

    Raises:
        ValueError: for what `all_structures` leaves out: dropout, a single layer, segments of several blocks,
            materialised attention of one head or one token, other adapters, and adapters with materialised attention.
    """
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
    adapters = adapters_of(recipe)
    if adapters != "none" and (recipe.attention != "fused" or shape.num_layers < 3):
        what = f"{recipe.attention} attention and num_layers {shape.num_layers}"
        raise ValueError(f"adapters need fused attention and num_layers of at least 3 here, got {what}")
    recomputed = "all but matmuls" if recipe.keep_matmuls else "blocks" if recipe.checkpointing else "none"
    return " / ".join((style_of(shape), recipe.precision, recomputed, attention, adapters))


def update_of(shape: TransformerShape, recipe: StepRecipe) -> str:
    """What of a step decides its optimizer's state and temporaries, apart from sizes."""
    itemsize = str(recipe.parameter_itemsize)
    return " / ".join((style_of(shape), itemsize, recipe.optimizer, recipe.implementation, adapters_of(recipe)))


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
    choices = product(styles().values(), PRECISIONS, RECOMPUTATION.values(), ATTENTION, ADAPTERS)
    for shape, precision, recomputation, attention, adapters in choices:
        if adapters != "none":
            if attention != "fused":
                continue
            shape = replace(shape, num_layers=3)
        microbatch = 1 if attention.endswith("one sequence") else 2
        options: dict[str, Any] = {"attention": attention.split()[0], "precision": precision, **recomputation}
        recipe = StepRecipe(microbatch, 8, **options, **adapter_options(adapters, 2))
        yield structure_of(shape, recipe), shape, recipe
