"""Recipes of model states: which parts a way of training keeps, in bytes per parameter.

"12", "16", "18" and "20 bytes per parameter" are different recipes, not disagreements.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class ModelStatesRecipe:
    """What a training recipe keeps for every parameter, in bytes per parameter.

    Attributes:
        name: the key in `RECIPES`.
        description: the recipe in words.
        weights: the weights that forward reads.
        gradients: the gradients that backward writes.
        master_weights: a separate fp32 copy that the optimizer updates.
        accumulation_buffers: a separate fp32 sum of gradients.
        first_moment: momentum, or Adam's first moment.
        second_moment: Adam's second moment, or the values of a factored one.
        second_moment_is_factored: rows and columns instead of the whole tensor (Adafactor), for two dimensions and up.
        moment_block: values that share one fp32 scale in a quantised moment; 0 for no scales.
        has_step_counters: whether the optimizer keeps one fp32 scalar for each parameter tensor.
        source: where the recipe is described.
    """

    name: str
    description: str
    weights: int
    gradients: int
    master_weights: int = 0
    accumulation_buffers: int = 0
    first_moment: int = 0
    second_moment: int = 0
    second_moment_is_factored: bool = False
    moment_block: int = 0
    has_step_counters: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ValueError(f"{field.name} must be an integer of at least 0, got {value!r}")
        if self.weights < 1:
            raise ValueError(f"weights must be at least 1 byte per parameter, got {self.weights}")

    @property
    def bytes_per_parameter(self) -> int:
        """The familiar number, e.g. 16; step counters and block scales are not in it.

        Raises:
            ValueError: for a factored second moment, whose size depends on the tensors' sizes.
        """
        if self.second_moment_is_factored:
            raise ValueError(f"{self.name} has no fixed bytes per parameter: its second moment depends on tensor sizes")
        moments = self.first_moment + self.second_moment
        return self.weights + self.master_weights + self.gradients + self.accumulation_buffers + moments


_RECIPES = (
    ModelStatesRecipe(
        "fp32-adam",
        "everything in fp32, AdamW",
        weights=4,
        gradients=4,
        first_moment=4,
        second_moment=4,
        source="torch.optim.AdamW",
    ),
    ModelStatesRecipe(
        "autocast-adam",
        "autocast: fp32 weights, gradients and moments; the cached 16-bit casts of weights are not model states",
        weights=4,
        gradients=4,
        first_moment=4,
        second_moment=4,
        source="torch.autocast, torch.optim.AdamW",
    ),
    ModelStatesRecipe(
        "bf16-master-adam",
        "bf16 weights and gradients, fp32 master weights and moments",
        weights=2,
        gradients=2,
        master_weights=4,
        first_moment=4,
        second_moment=4,
        source="Rajbhandari et al. 2020 (arXiv:1910.02054) section 3.1: 2 + 2 + K with K = 12",
    ),
    ModelStatesRecipe(
        "bf16-master-fp32-gradients-adam",
        "bf16 weights, fp32 gradients, master weights and moments",
        weights=2,
        gradients=4,
        master_weights=4,
        first_moment=4,
        second_moment=4,
        source="Megatron-LM theoretical_memory_usage.py; transformers documentation, model memory anatomy: 18",
    ),
    ModelStatesRecipe(
        "bf16-master-fp32-accumulation-adam",
        "bf16 weights and gradients, a separate fp32 sum of gradients, fp32 master weights and moments",
        weights=2,
        gradients=2,
        master_weights=4,
        accumulation_buffers=4,
        first_moment=4,
        second_moment=4,
        source="DeepSpeed 0.19.8 estimate_zero2_model_states_mem_needs: 2 + 18 on one device",
    ),
    ModelStatesRecipe(
        "bf16-adam",
        "everything in bf16, AdamW without master weights",
        weights=2,
        gradients=2,
        first_moment=2,
        second_moment=2,
        source="torch.optim.AdamW on bf16 parameters",
    ),
    ModelStatesRecipe(
        "fp32-sgd", "fp32, plain SGD", weights=4, gradients=4, has_step_counters=False, source="torch.optim.SGD"
    ),
    ModelStatesRecipe(
        "fp32-momentum",
        "fp32, SGD with momentum",
        weights=4,
        gradients=4,
        first_moment=4,
        has_step_counters=False,
        source="torch.optim.SGD(momentum=...)",
    ),
    ModelStatesRecipe(
        "bf16-master-adam8bit",
        "bf16 weights and gradients, fp32 master weights, 8-bit moments, their block scales left out",
        weights=2,
        gradients=2,
        master_weights=4,
        first_moment=1,
        second_moment=1,
        has_step_counters=False,
        source="transformers documentation: 2 bytes per parameter for 8-bit AdamW",
    ),
    ModelStatesRecipe(
        "bf16-master-adam8bit-scales",
        "the same with one fp32 scale for each block of 256 values of each moment, for tensors of every size",
        weights=2,
        gradients=2,
        master_weights=4,
        first_moment=1,
        second_moment=1,
        moment_block=256,
        has_step_counters=False,
        source="Dettmers et al. 2022 (arXiv:2110.02861); bitsandbytes keeps tensors below 4,096 values in 32 bits",
    ),
    ModelStatesRecipe(
        "fp32-adafactor",
        "fp32, no first moment, second moment as rows and columns",
        weights=4,
        gradients=4,
        second_moment=4,
        second_moment_is_factored=True,
        source="Shazeer and Stern 2018 (arXiv:1804.04235) section 3; torch.optim.Adafactor",
    ),
)
RECIPES: dict[str, ModelStatesRecipe] = {recipe.name: recipe for recipe in _RECIPES}


def find_recipe(recipe: ModelStatesRecipe | str) -> ModelStatesRecipe:
    """A recipe by name; a recipe comes back as it is.

    Raises:
        ValueError: if there is no recipe of that name; the message lists the names.
    """
    if isinstance(recipe, ModelStatesRecipe):
        return recipe
    if recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}; there are {', '.join(RECIPES)}")
    return RECIPES[recipe]
