"""Plans of activation checkpointing for one model and step: what each keeps, its peak, and what it computes again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt

from hwlessons.counts import check_count
from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.flops import StepFlops, step_flops
from hwlessons.formulas.ledger import layer_bytes, saved_rows
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe


@dataclass(frozen=True)
class CheckpointingPlan:
    """One way to checkpoint a step.

    Attributes:
        name: "none", "1 block", "2 blocks", ... (a segment's length) or "keep matmuls".
        recipe: the step with this plan.
        num_segments: checkpointed regions in one forward; 0 for "none".
        saved_activation_bytes: kept for backward when the last forward ends.
        peak_bytes: the most that is alive in the step.
        flops: the step's matmuls, recomputation apart.
    """

    name: str
    recipe: StepRecipe
    num_segments: int
    saved_activation_bytes: int
    peak_bytes: int
    flops: StepFlops


def checkpointing_plan(
    shape: TransformerShape, recipe: StepRecipe, name: str | None = None, *, kernels: str = "cpu"
) -> CheckpointingPlan:
    """The plan that a recipe asks for: bytes from the ledger's tape, FLOPs from their closed form.

    Args:
        shape: the model.
        recipe: the step.
        name: a label, if not the usual one.
        kernels: "cpu" or "cuda": whose saved tensors.

    Raises:
        ValueError: as `predict_step`.
    """
    predicted = predict_step(shape, recipe, kernels=kernels)
    length = recipe.blocks_per_segment
    usual = f"{length} block{'s' if length > 1 else ''}"
    if recipe.keep_matmuls:
        usual = "keep matmuls" if length == 1 else f"{usual}, keep matmuls"
    return CheckpointingPlan(
        name=name or (usual if recipe.checkpointing else "none"),
        recipe=recipe,
        num_segments=-(-shape.num_layers // length) if recipe.checkpointing else 0,
        saved_activation_bytes=predicted.saved_activation_bytes,
        peak_bytes=predicted.peak_bytes,
        flops=step_flops(shape, recipe),
    )


def checkpointing_plans(
    shape: TransformerShape,
    recipe: StepRecipe,
    *,
    segment_lengths: Iterable[int] | None = None,
    kernels: str = "cpu",
) -> tuple[CheckpointingPlan, ...]:
    """Plans for one step, side by side: none, block by block with kept matmuls, and segments of each length.

    Args:
        shape: the model.
        recipe: the step; its own checkpointing does not matter.
        segment_lengths: blocks in a segment; 1 to `num_layers` if not given.
        kernels: "cpu" or "cuda": whose saved tensors.

    Raises:
        ValueError: for a length outside 1 to `num_layers`, or as `predict_step`.
    """
    lengths = range(1, shape.num_layers + 1) if segment_lengths is None else segment_lengths
    none = replace(recipe, checkpointing=False, blocks_per_segment=1, keep_matmuls=False)
    whole = replace(none, checkpointing=True)
    recipes = [none, replace(whole, keep_matmuls=True), *(replace(whole, blocks_per_segment=n) for n in lengths)]
    return tuple(checkpointing_plan(shape, one, kernels=kernels) for one in recipes)


def segments_bytes(num_layers: int, layers_per_segment: int, *, boundary_bytes: int, layer_bytes: int) -> int:
    """Activations of a chain of equal layers while its fullest segment is recomputed, in bytes.

    One boundary for each segment, and all that `layers_per_segment` layers keep, of which the first boundary is one.

    Raises:
        ValueError: for a count below 1, a segment longer than the chain, or negative bytes.
    """
    _check_chain(num_layers, boundary_bytes, layer_bytes)
    if not 1 <= layers_per_segment <= num_layers:
        raise ValueError(f"layers_per_segment must be from 1 to num_layers ({num_layers}), got {layers_per_segment!r}")
    num_segments = -(-num_layers // layers_per_segment)
    return num_segments * boundary_bytes + layers_per_segment * layer_bytes - boundary_bytes


def best_segment_length(num_layers: int, *, boundary_bytes: int, layer_bytes: int) -> float:
    """Layers in a segment for which `segments_bytes` is least, as a real number: sqrt(n * boundary / layer).

    Where a layer keeps only its boundary, that is the square root of the number of layers. Below 1 it means: segments
    of one layer, and checkpointing inside the layer would keep less.

    Raises:
        ValueError: as `segments_bytes`.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.3 (arXiv:1604.06174).
    """
    _check_chain(num_layers, boundary_bytes, layer_bytes)
    return sqrt(num_layers * boundary_bytes / layer_bytes)


def block_bytes(shape: TransformerShape, recipe: StepRecipe, *, kernels: str = "cpu") -> tuple[int, int]:
    """Bytes of a block's boundary (its input), and of all that one block keeps without checkpointing.

    The causal mask and the rotary table belong to no block.
    """
    none = replace(recipe, checkpointing=False, blocks_per_segment=1, keep_matmuls=False)
    rows = saved_rows(shape, none, kernels=kernels)
    inside = [row for row in rows if row.tensor not in ("causal mask", "rotary table")]
    boundary = recipe.parameter_itemsize * recipe.microbatch * recipe.sequence * shape.width
    return boundary, layer_bytes(inside)["block 0"]


def _check_chain(num_layers: int, boundary_bytes: int, layer_bytes: int) -> None:
    check_count("num_layers", num_layers)
    if boundary_bytes < 0:
        raise ValueError(f"boundary_bytes must be at least 0, got {boundary_bytes!r}")
    if layer_bytes < 1:
        raise ValueError(f"layer_bytes must be at least 1, got {layer_bytes!r}")
