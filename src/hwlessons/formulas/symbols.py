"""The symbols that the ledger writes sizes with: their values, and which ones a parameter has."""

from __future__ import annotations

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.parameters import ParameterTensor
from hwlessons.formulas.step_recipe import StepRecipe


def symbol_sizes(shape: TransformerShape, recipe: StepRecipe) -> dict[str, int]:
    """The value of every symbol in the ledger's `dims`.

    Raises:
        ValueError: if learned positions are fewer than the sequence is long.
    """
    if shape.positions == "learned" and recipe.sequence > shape.max_positions:
        raise ValueError(f"sequence must be at most max_positions ({shape.max_positions}), got {recipe.sequence}")
    return {
        "b": recipe.microbatch,
        "s": recipe.sequence,
        "s/32": -(-recipe.sequence // 32) * 32,
        "h": shape.width,
        "h/2": shape.width // 2,
        "a": shape.num_heads,
        "d": shape.head_dim,
        "d/2": shape.head_dim // 2,
        "k": shape.kv_width,
        "k/2": shape.kv_width // 2,
        "f": shape.ffn_width,
        "V": shape.vocab_size,
        "p": shape.max_positions,
        "n": recipe.num_microbatches,
        "r": recipe.adapters.rank if recipe.adapters else 0,
        "2": 2,
    }


def parameter_dims(tensor: ParameterTensor) -> str:
    """The symbols of a parameter's sizes, from its name."""
    if tensor.name.startswith(("token_embedding", "head")):
        return "V h"
    if tensor.name.startswith("position"):
        return "p h"
    layer = tensor.name.split(".")[-2]
    rows = {"key": "k", "value": "k", "gate": "f", "up": "f"}.get(layer, "h")
    if tensor.name.endswith("bias") or "norm" in layer:
        return rows
    return f"{rows} {'f' if layer == 'down' else 'h'}"
