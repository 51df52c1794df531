"""Model states: the bytes of weights, gradients and optimizer states of a whole model, by part.

Activations, temporaries and cached low-precision casts of weights are not model states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import prod

from hwlessons.counts import check_count
from hwlessons.formulas.recipes import RECIPES, ModelStatesRecipe, find_recipe
from hwlessons.units import GB, GIB

__all__ = ["RECIPES", "ModelStates", "ModelStatesRecipe", "model_state_bytes"]

STEP_COUNTER_BYTES = 4
FP32_BYTES = 4


@dataclass(frozen=True)
class ModelStates:
    """Bytes of the model states by part, for a whole model."""

    recipe: ModelStatesRecipe
    num_parameters: int
    weight_bytes: int
    gradient_bytes: int
    master_weight_bytes: int
    accumulation_buffer_bytes: int
    first_moment_bytes: int
    second_moment_bytes: int
    block_scale_bytes: int
    step_counter_bytes: int

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part, in the order of the fields."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name.endswith("_bytes")}

    @property
    def optimizer_state_bytes(self) -> int:
        """Master weights, moments, block scales and step counters: what the optimizer holds (ZeRO's K, per model)."""
        moments = self.first_moment_bytes + self.second_moment_bytes + self.block_scale_bytes
        return self.master_weight_bytes + moments + self.step_counter_bytes

    @property
    def total_bytes(self) -> int:
        """All parts."""
        return sum(self.parts.values())

    @property
    def total_gib(self) -> float:
        """All parts in GiB (2**30 bytes)."""
        return self.total_bytes / GIB

    @property
    def total_gb(self) -> float:
        """All parts in GB (10**9 bytes)."""
        return self.total_bytes / GB

    @property
    def bytes_per_parameter(self) -> float:
        """All parts over the number of parameters, step counters and scales included."""
        return self.total_bytes / self.num_parameters


def model_state_bytes(
    parameters: int | Iterable[tuple[int, ...]], recipe: ModelStatesRecipe | str, *, num_parameter_tensors: int = 0
) -> ModelStates:
    """Bytes of the model states of a model under a recipe.

    Args:
        parameters: the number of parameters, or the sizes of every parameter tensor, for instance
            `[p.shape for p in model.parameters()]` or `[t.sizes for t in parameter_tensors(shape)]`. With sizes the
            result is exact to the byte; with a number the step counters are those of `num_parameter_tensors`, and block
            scales are counted as for one tensor.
        recipe: a recipe or the name of one in `RECIPES`.
        num_parameter_tensors: how many tensors the parameters are, if they are given as a number.

    Raises:
        ValueError: for an unknown recipe, a number of parameters or a size below 1, or a factored recipe without sizes.
    """
    recipe = find_recipe(recipe)
    if isinstance(parameters, int) and not isinstance(parameters, bool):
        if recipe.second_moment_is_factored:
            raise ValueError(
                f"{recipe.name} needs the sizes of every parameter tensor, got only a number: {parameters}"
            )
        tensors: list[tuple[int, ...]] = [(_positive("num_parameters", parameters),)]
        num_counters = num_parameter_tensors
        if num_counters < 0:
            raise ValueError(f"num_parameter_tensors must be at least 0, got {num_counters}")
    elif isinstance(parameters, Iterable):
        tensors = [tuple(_positive("a tensor's size", size) for size in sizes) for sizes in parameters]
        num_counters = len(tensors)
    else:
        raise ValueError(f"parameters must be a number of at least 1 or the tensors' sizes, got {parameters!r}")
    if not tensors:
        raise ValueError("parameters must hold at least one tensor, got none")
    n = sum(map(prod, tensors))
    num_scales = 0
    if recipe.moment_block:
        num_moments = (recipe.first_moment > 0) + (recipe.second_moment > 0)
        num_scales = num_moments * sum(-(-prod(sizes) // recipe.moment_block) for sizes in tensors)
    num_second = sum(map(_num_factored, tensors)) if recipe.second_moment_is_factored else n
    return ModelStates(
        recipe=recipe,
        num_parameters=n,
        weight_bytes=n * recipe.weights,
        gradient_bytes=n * recipe.gradients,
        master_weight_bytes=n * recipe.master_weights,
        accumulation_buffer_bytes=n * recipe.accumulation_buffers,
        first_moment_bytes=n * recipe.first_moment,
        second_moment_bytes=num_second * recipe.second_moment,
        block_scale_bytes=num_scales * FP32_BYTES,
        step_counter_bytes=num_counters * STEP_COUNTER_BYTES if recipe.has_step_counters else 0,
    )


def _num_factored(sizes: tuple[int, ...]) -> int:
    """Values of a factored second moment: one per row and one per column of the last two dimensions."""
    return prod(sizes) if len(sizes) < 2 else prod(sizes[:-1]) + prod(sizes[:-2]) * sizes[-1]


def _positive(name: str, value: int) -> int:
    check_count(name, value)
    return value
