"""Whole training steps of the small transformer, built from a shape and a recipe, for `track` and `trace`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.adapters import add_adapters
from hwlessons.lab.transformer import Transformer


def build_step(
    shape: TransformerShape, recipe: StepRecipe, *, device: torch.device | str = "cpu"
) -> Callable[[], tuple[Transformer, Optimizer, Callable[[], Tensor]]]:
    """A `build()` for `hwlessons.lab.memory.track` and `trace`: model, optimizer and one whole optimizer step.

    Args:
        shape: the model.
        recipe: everything else about the step.
        device: where parameters and batches are made.

    Returns:
        A function without arguments that returns `(model, optimizer, step)`; `step()` returns the last loss.
    """

    def build() -> tuple[Transformer, Optimizer, Callable[[], Tensor]]:
        dtype = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
        model = Transformer(
            shape,
            attention=recipe.attention,
            dropout=recipe.dropout,
            checkpointing=recipe.checkpointing,
            blocks_per_segment=recipe.blocks_per_segment,
            keep_matmuls=recipe.keep_matmuls,
        ).to(device, dtype)
        if recipe.adapters is not None:
            add_adapters(model, recipe.adapters, base_format=recipe.base_format)
        optimizer = make_optimizer(model, recipe)
        size = (recipe.num_microbatches, recipe.microbatch, recipe.sequence)
        tokens = torch.randint(shape.vocab_size, size, device=device)
        targets = torch.randint(shape.vocab_size, size, device=device)
        device_type = torch.device(device).type

        def step() -> Tensor:
            for microbatch in range(recipe.num_microbatches):
                with torch.autocast(device_type, torch.bfloat16, enabled=recipe.precision == "autocast_bf16"):
                    logits = model(tokens[microbatch]).flatten(0, 1)
                    loss = F.cross_entropy(logits, targets[microbatch].flatten()) / recipe.num_microbatches
                    del logits  # or a copy of them stays alive through backward
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return model, optimizer, step

    return build


def make_optimizer(model: torch.nn.Module, recipe: StepRecipe) -> Optimizer:
    """The recipe's optimizer over all parameters that are not frozen."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    foreach, fused = recipe.implementation == "foreach", recipe.implementation == "fused"
    if recipe.optimizer == "adamw":
        return AdamW(parameters, lr=1e-3, foreach=foreach, fused=fused)
    momentum = 0.9 if recipe.optimizer == "momentum" else 0.0
    return SGD(parameters, lr=0.1, momentum=momentum, foreach=foreach, fused=fused)
