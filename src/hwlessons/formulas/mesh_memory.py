"""The peak memory of one device of a mesh: a step predicted with the device's shares."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import prod

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.ledger import saved_rows
from hwlessons.formulas.mesh_shares import local_tensor_sizes, stage_saved_bytes, stage_tensors
from hwlessons.formulas.parameters import parameter_tensors
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe


@lru_cache(maxsize=256)
def mesh_peak(
    shape: TransformerShape,
    recipe: StepRecipe,
    mesh: tuple[int, int, int],
    zero_stage: int,
    num_microbatches: int,
    kernels: str,
) -> tuple[int, dict[str, int]]:
    """Peak bytes of the fullest device of a mesh of d × t × p, and the same by category.

    It is `predict_step` with the device's shares; temporaries are counted whole, so tensor and pipeline parallelism
    need less. Where gradients or weights are sharded, the largest unit (a block, or all outside the blocks) is whole
    for a moment, which "gathered" counts: once its gradients from stage 2 on, and for stage 3 also twice its weights,
    because the next unit is fetched early.

    Args:
        shape: the model.
        recipe: the step; its `num_microbatches` is not read.
        mesh: d, t and p.
        zero_stage: what the data-parallel devices share.
        num_microbatches: of each replica.
        kernels: whose saved tensors.

    Raises:
        ValueError: if the mesh does not divide the model.
    """
    d, t, p = mesh
    total = sum(tensor.num_values for tensor in parameter_tensors(shape))
    rows = saved_rows(shape, recipe, kernels=kernels)
    saved = stage_saved_bytes(rows, shape, tensor_parallel_size=t, pipeline_size=p, num_microbatches=num_microbatches)
    stages = stage_tensors(shape, tensor_parallel_size=t, pipeline_size=p)
    own_recipe = replace(recipe, num_microbatches=min(num_microbatches, 2))  # gradients already exist in the second
    peak_bytes, at_peak = 0, {}
    for number in {0, p - 1}:  # a stage between holds fewer microbatches than the first, and nothing but blocks
        share = Fraction(sum(map(prod, stages[number])), total)
        shares = {
            "parameters": share / (d if zero_stage >= 3 else 1),
            "gradients": share / (d if zero_stage >= 2 else 1),
            "optimizer_state": share / (d if zero_stage >= 1 else 1),
            "cached_casts": share,
            "saved_activations": saved[number] / sum(row.num_bytes for row in rows),
        }
        step = predict_step(shape, own_recipe, kernels=kernels, shares=shares)
        gathered = {2: 1, 3: 3}.get(zero_stage, 0) * _largest_unit(shape, t) * recipe.parameter_itemsize
        if step.peak_bytes + gathered > peak_bytes:
            peak_bytes, at_peak = step.peak_bytes + gathered, {**step.at_peak, "gathered": gathered}
    return peak_bytes, at_peak


def _largest_unit(shape: TransformerShape, tensor_parallel_size: int) -> int:
    """Values of the largest part that is gathered at once: a block, or everything outside the blocks."""
    units: dict[str, int] = {}
    for tensor in parameter_tensors(shape):
        unit = tensor.name.split(".")[1] if tensor.name.startswith("blocks.") else "root"
        units[unit] = units.get(unit, 0) + prod(local_tensor_sizes(tensor, tensor_parallel_size))
    return max(units.values())
