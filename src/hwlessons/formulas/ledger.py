"""The ledger of saved activations: one source for their bytes, the step's peak, the lessons' tables and calculators."""

from __future__ import annotations

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.model_tape import ModelTape
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.symbols import symbol_sizes
from hwlessons.formulas.tape_parts import SavedRow

__all__ = ["SavedRow", "layer_bytes", "saved_activation_bytes", "saved_rows", "symbol_sizes"]


def saved_rows(shape: TransformerShape, recipe: StepRecipe, *, kernels: str = "cpu") -> list[SavedRow]:
    """The ledger: every tensor that one microbatch keeps for backward, in the order in which it is first kept.

    Parameters, inputs and autocast's cached casts of parameters are not activations and have no row.

    Args:
        shape: the model.
        recipe: microbatch, sequence, attention, dropout, precision and checkpointing matter here.
        kernels: "cpu" or "cuda": which kernels' saved tensors.

    Raises:
        ValueError: for unknown kernels or a sequence longer than the learned positions.
    """
    model = ModelTape(shape, recipe, kernels)
    model.microbatch()
    return model.tape.rows()


def saved_activation_bytes(shape: TransformerShape, recipe: StepRecipe, *, kernels: str = "cpu") -> int:
    """Bytes that one microbatch keeps for backward when its forward pass ends: the sum of `saved_rows`."""
    return sum(row.num_bytes for row in saved_rows(shape, recipe, kernels=kernels))


def layer_bytes(rows: list[SavedRow]) -> dict[str, int]:
    """Bytes kept by layer ("embedding", "block 0", ..., "head", "loss"), in the order of the forward pass."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.layer] = totals.get(row.layer, 0) + row.num_bytes
    return totals
