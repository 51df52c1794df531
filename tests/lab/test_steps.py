"""Steps built from a recipe do what the recipe says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.memory import trace
from hwlessons.lab.steps import build_step
from hwlessons.lab.transformer import Transformer

SHAPE = TransformerShape.gpt2_like(num_layers=1, width=16, num_heads=2, vocab_size=64, max_positions=8)
RECIPE = StepRecipe(4, 8)


def built(recipe, seed=0):
    torch.manual_seed(seed)
    return build_step(SHAPE, recipe)()


@pytest.mark.parametrize(
    ("recipe", "dtype"),
    [
        (RECIPE, torch.float32),
        (replace(RECIPE, precision="autocast_bf16"), torch.float32),
        (replace(RECIPE, precision="bf16"), torch.bfloat16),
    ],
)
def test_dtypes(recipe, dtype):
    model, _, step = built(recipe)
    outputs = []
    model.blocks[0].attention.query.register_forward_hook(lambda module, args, out: outputs.append(out.dtype))
    loss = step()
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert outputs == [torch.float32 if recipe.precision == "fp32" else torch.bfloat16]
    assert loss.dtype == (torch.bfloat16 if recipe.precision == "bf16" else torch.float32)


@pytest.mark.parametrize("implementation", ["for_loop", "foreach", "fused"])
@pytest.mark.parametrize(
    ("optimizer", "kind", "momentum"), [("sgd", SGD, 0), ("momentum", SGD, 0.9), ("adamw", AdamW, None)]
)
def test_optimizers(optimizer, kind, momentum, implementation):
    _, made, _ = built(replace(RECIPE, optimizer=optimizer, implementation=implementation))
    assert type(made) is kind
    assert made.defaults.get("momentum") == momentum
    assert made.defaults["foreach"] == (implementation == "foreach")
    assert made.defaults["fused"] == (implementation == "fused")


def test_model_options():
    model, _, _ = built(replace(RECIPE, attention="materialised", dropout=0.25, checkpointing=True, keep_matmuls=True))
    assert (model.attention, model.dropout, model.checkpointing) == ("materialised", 0.25, True)
    assert (model.blocks_per_segment, model.keep_matmuls) == (1, True)


def test_the_loss_falls():
    _, _, step = built(RECIPE)
    losses = [step().item() for _ in range(50)]
    assert losses[-1] < 0.8 * losses[0]


def test_accumulation_averages_and_steps_once():
    recipe = replace(RECIPE, num_microbatches=3, optimizer="sgd")
    model, optimizer, step = built(recipe)
    calls, seen = [], []
    optimizer.register_step_pre_hook(lambda *_: calls.append([p.grad.clone() for p in model.parameters()]))
    model.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    step()
    assert len(calls) == 1 and len(seen) == 3
    assert all(p.grad is None for p in model.parameters())
    # the same three microbatches as one batch of 12 sequences, from the same start
    whole, _, _ = built(recipe)
    torch.manual_seed(0)
    Transformer(SHAPE)
    tokens, targets = torch.randint(64, (3, 4, 8)), torch.randint(64, (3, 4, 8))
    assert torch.equal(tokens, torch.stack(seen))
    cross_entropy(whole(tokens.flatten(0, 1)).flatten(0, 1), targets.flatten()).backward()
    for parameter, gradient in zip(whole.parameters(), calls[0], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_device_is_where_everything_is_made():
    assert {p.device.type for p in build_step(SHAPE, RECIPE, device="meta")()[0].parameters()} == {"meta"}
    assert trace(build_step(SHAPE, RECIPE)).peak_bytes > 0
