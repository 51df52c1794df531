"""Closed-form FLOPs beside torch's own counter, which sees every matmul of a real step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from _configurations import draw_configurations
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.flops import backward_flops, block_matmul_flops, forward_flops, head_flops, step_flops
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.steps import build_step

B, S, H, A, V, L = 3, 20, 48, 4, 301, 3
GPT = TransformerShape.gpt2_like(num_layers=L, width=H, num_heads=A, vocab_size=V, max_positions=64)
LLAMA = TransformerShape.llama_like(num_layers=L, width=H, num_heads=A, vocab_size=V, ffn_width=116, num_kv_heads=2)
RECIPE = StepRecipe(B, S, attention="materialised")


def counted_flops(shape, recipe):
    """Torch's counter of FLOPs over one optimizer step; it knows no fused attention of CPUs."""
    _, _, step = build_step(shape, recipe)()
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def fused_attention_flops(shape, recipe):
    """What torch's counter says of CUDA's fused kernels: forward and recomputation, backward."""
    size = (recipe.microbatch, shape.num_heads, recipe.sequence, shape.head_dim)
    forward, backward = sdpa_flop_count(size, size, size), sdpa_backward_flop_count(size, size, size, size)
    again = forward if recipe.checkpointing and not recipe.keep_matmuls else 0
    return shape.num_layers * recipe.num_microbatches * (forward + again + backward)


@pytest.mark.parametrize("seed", [5, 6])
def test_drawn_configurations(seed):
    for shape, recipe in draw_configurations(seed, 20):
        unseen = fused_attention_flops(shape, recipe) if recipe.attention == "fused" else 0
        assert step_flops(shape, recipe).total_flops == counted_flops(shape, recipe) + unseen, (shape, recipe)


def test_gpt2_like():
    # Narayanan et al. 2021, section 3.1 and the appendix, without their recomputation
    forward = L * (24 * B * S * H**2 + 4 * B * S**2 * H) + 2 * B * S * H * V
    assert forward_flops(GPT, RECIPE) == forward
    assert counted_flops(GPT, RECIPE) == step_flops(GPT, RECIPE).total_flops == 3 * forward


def test_llama_like():
    features = 2 * H * H + 2 * H * 24 + 3 * H * 116
    assert forward_flops(LLAMA, RECIPE) == L * (2 * B * S * features + 4 * B * S**2 * H) + 2 * B * S * H * V
    assert list(block_matmul_flops(LLAMA, RECIPE))[-1] == list(block_matmul_flops(GPT, RECIPE))[-1] == "down"


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("length", "num_segments"), [(1, 3), (2, 2), (3, 1)])
@pytest.mark.parametrize("shape", [GPT, LLAMA], ids=["GPT-2-like", "Llama-like"])
def test_recomputation_stops_early(shape, length, num_segments, dropout):
    recipe = replace(RECIPE, checkpointing=True, blocks_per_segment=length, dropout=dropout)
    whole = forward_flops(shape, recipe) - head_flops(shape, recipe)
    saved = 0 if dropout else num_segments * 2 * B * S * H * shape.ffn_width
    found = step_flops(shape, recipe)
    assert found.recomputed_flops == whole - saved
    assert found.total_flops == counted_flops(shape, recipe)


def test_kept_matmuls_are_not_recomputed():
    recipe = replace(RECIPE, checkpointing=True, keep_matmuls=True)
    assert step_flops(GPT, recipe) == step_flops(GPT, RECIPE)
    assert counted_flops(GPT, recipe) == counted_flops(GPT, RECIPE)


def test_a_third_is_never_reached():
    plans = [replace(RECIPE, checkpointing=True, blocks_per_segment=length) for length in (1, 2, 3)]
    assert step_flops(GPT, RECIPE).extra_fraction == 0
    assert 0 < step_flops(GPT, plans[0]).extra_fraction < step_flops(GPT, plans[2]).extra_fraction < 1 / 3
    # with dropout and a small head, nearly
    wide = replace(GPT, vocab_size=1)
    assert step_flops(wide, replace(plans[0], dropout=0.1)).extra_fraction == pytest.approx(1 / 3, rel=0.001)


def test_microbatches_add_up():
    assert step_flops(GPT, replace(RECIPE, num_microbatches=4)).total_flops == 4 * step_flops(GPT, RECIPE).total_flops


def test_fused_attention_computes_its_scores_twice():
    fused = replace(RECIPE, attention="fused")
    assert forward_flops(GPT, fused) == forward_flops(GPT, RECIPE)
    assert backward_flops(GPT, fused) - backward_flops(GPT, RECIPE) == L * 2 * B * S**2 * H


def test_published_utilisation(published):
    case = published("mfu_korthikanti_22B")
    i = case.inputs
    shape = TransformerShape.gpt2_like(
        num_layers=i["layers"], width=i["hidden"], num_heads=64, vocab_size=i["vocab"], max_positions=i["seq"]
    )
    flops = step_flops(shape, StepRecipe(i["batch"], i["seq"], attention="materialised")).total_flops
    case.check(flops / (i["iteration_s"] * i["gpus"] * i["peak"]))


def test_bad_input():
    with pytest.raises(ValueError, match=r"blocks_per_segment must be an integer from 1 to num_layers \(3\), got 4"):
        step_flops(GPT, replace(RECIPE, checkpointing=True, blocks_per_segment=4))
