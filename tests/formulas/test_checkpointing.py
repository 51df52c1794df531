"""Plans of checkpointing beside measured steps, and the square root beside a measured chain of equal layers."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.checkpointing import (
    best_segment_length,
    block_bytes,
    checkpointing_plan,
    checkpointing_plans,
    segments_bytes,
)
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.memory import track
from hwlessons.lab.steps import build_step

GPT = TransformerShape.gpt2_like(num_layers=5, width=16, num_heads=2, vocab_size=65, max_positions=32)
LLAMA = TransformerShape.llama_like(
    num_layers=4, width=32, num_heads=4, vocab_size=64, ffn_width=48, num_kv_heads=2, tied_embeddings=True
)
RECIPE = StepRecipe(2, 24, attention="materialised")


@pytest.mark.parametrize("options", [{}, {"precision": "autocast_bf16", "dropout": 0.1}], ids=str)
@pytest.mark.parametrize("shape", [GPT, LLAMA], ids=["GPT-2-like", "Llama-like"])
def test_plans_are_the_measured_steps(shape, options):
    plans = checkpointing_plans(shape, replace(RECIPE, **options))
    assert len(plans) == shape.num_layers + 2
    for plan in plans:
        measured = track(build_step(shape, plan.recipe))
        _, _, step = build_step(shape, plan.recipe)()
        with FlopCounterMode(display=False) as counter:
            step()
        assert plan.saved_activation_bytes == measured.saved_activation_bytes, plan.name
        assert plan.peak_bytes == measured.peak_bytes, plan.name
        assert plan.flops.total_flops == counter.get_total_flops(), plan.name


def test_names_and_segments():
    plans = checkpointing_plans(GPT, replace(RECIPE, checkpointing=True, keep_matmuls=True), segment_lengths=(1, 2, 5))
    found = [(plan.name, plan.num_segments) for plan in plans]
    assert found == [("none", 0), ("keep matmuls", 5), ("1 block", 5), ("2 blocks", 3), ("5 blocks", 1)]
    both = replace(RECIPE, checkpointing=True, keep_matmuls=True, blocks_per_segment=2)
    assert checkpointing_plan(GPT, both).name == "2 blocks, keep matmuls"
    assert checkpointing_plan(GPT, both, "mine").name == "mine"


def test_kept_matmuls_cost_bytes_and_no_flops():
    none, matmuls, blocks = checkpointing_plans(GPT, RECIPE, segment_lengths=(1,))
    assert none.flops == matmuls.flops
    assert blocks.flops.recomputed_flops > 0
    assert blocks.saved_activation_bytes < matmuls.saved_activation_bytes < none.saved_activation_bytes


def test_bytes_of_a_block():
    b, s, h, a = 2, 24, 16, 2
    assert block_bytes(GPT, RECIPE) == (4 * b * s * h, 64 * b * s * h + 4 * b * a * s * s + 16 * b * s)
    # boundaries are all that longer segments save
    one, two = checkpointing_plans(GPT, RECIPE, segment_lengths=(1, 2))[2:]
    assert one.saved_activation_bytes - two.saved_activation_bytes == 2 * block_bytes(GPT, RECIPE)[0]


NUM_LAYERS, WIDTH, NUM_ROWS = 16, 8, 512


def chain_step(layers_per_segment):
    """A chain of layers that keep one activation each: a matmul's input is the tanh before it."""

    def build():
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(NUM_LAYERS)]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters())
        data = torch.randn(NUM_ROWS, WIDTH)

        def step():
            x = data
            for first in range(0, NUM_LAYERS, layers_per_segment):
                x = checkpoint(model[first : first + layers_per_segment], x, use_reentrant=False)
            x.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    return build


def test_square_root_of_a_chain():
    activation = 4 * NUM_ROWS * WIDTH
    lengths = range(1, NUM_LAYERS + 1)
    predicted = [segments_bytes(NUM_LAYERS, n, boundary_bytes=activation, layer_bytes=activation) for n in lengths]
    # one layer a segment, or one segment: every activation once, and none counted twice
    assert predicted[0] == predicted[-1] == NUM_LAYERS * activation
    measured = [track(chain_step(n)) for n in lengths]
    # what else is alive at the peak does not depend on the segments, but for small gradients of the weights
    rest = [one.peak_bytes - on_paper for one, on_paper in zip(measured, predicted, strict=True)]
    assert max(rest) - min(rest) < activation / 4
    best = best_segment_length(NUM_LAYERS, boundary_bytes=activation, layer_bytes=activation)
    assert best == isqrt(NUM_LAYERS)
    assert (
        min(lengths, key=lambda n: predicted[n - 1]) == min(lengths, key=lambda n: measured[n - 1].peak_bytes) == best
    )


def test_best_segment_is_a_minimum():
    for boundary, layer in ((4, 4), (4, 64), (4, 400)):
        best = best_segment_length(64, boundary_bytes=boundary, layer_bytes=layer)
        lengths = [n for n in range(1, 65) if 64 % n == 0]
        least = min(lengths, key=lambda n: segments_bytes(64, n, boundary_bytes=boundary, layer_bytes=layer))
        assert least == min(lengths, key=lambda n: max(n / best, best / n))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1, 1), "num_layers must be an integer of at least 1, got 0"),
        ((4, 0, 1, 1), r"layers_per_segment must be from 1 to num_layers \(4\), got 0"),
        ((4, 5, 1, 1), r"layers_per_segment must be from 1 to num_layers \(4\), got 5"),
        ((4, 1, -1, 1), "boundary_bytes must be at least 0, got -1"),
        ((4, 1, 1, 0), "layer_bytes must be at least 1, got 0"),
    ],
)
def test_bad_chains(arguments, message):
    num_layers, length, boundary, layer = arguments
    with pytest.raises(ValueError, match=message):
        segments_bytes(num_layers, length, boundary_bytes=boundary, layer_bytes=layer)


def test_bad_segments():
    with pytest.raises(ValueError, match="blocks_per_segment must be an integer of at least 1, got 0"):
        checkpointing_plans(GPT, RECIPE, segment_lengths=(0,))
    with pytest.raises(ValueError, match=r"blocks_per_segment must be an integer from 1 to num_layers \(5\), got 6"):
        checkpointing_plans(GPT, RECIPE, segment_lengths=(6,))
