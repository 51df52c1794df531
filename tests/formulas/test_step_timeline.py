"""The step's timeline beside `predict_step`, on configurations drawn from the full grid, and beside a traced step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from _configurations import draw_configurations

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.ledger import layer_bytes
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.step_timeline import Moment, step_timeline
from hwlessons.lab.memory import trace
from hwlessons.lab.steps import build_step

GPT = TransformerShape.gpt2_like(
    num_layers=4, width=16, num_heads=2, vocab_size=65, max_positions=16, tied_embeddings=False
)
PLAIN = StepRecipe(2, 8)
EVERY = StepRecipe(2, 8, checkpointing=True)
PAIRS = StepRecipe(2, 8, checkpointing=True, blocks_per_segment=2)
SELECTIVE = StepRecipe(2, 8, checkpointing=True, keep_matmuls=True)
PLANS = pytest.mark.parametrize("recipe", [PLAIN, EVERY, PAIRS, SELECTIVE], ids=["none", "every", "pairs", "kept"])


def held_bytes(moment: Moment, *kinds: str) -> int:
    return sum(tensor.num_bytes for tensor in moment.held if tensor.kind in kinds)


@pytest.mark.parametrize("seed", [20261130, 9])
def test_its_most_is_the_predicted_peak_in_every_phase(seed):
    for shape, recipe in draw_configurations(seed, 30):
        predicted, timeline = predict_step(shape, recipe), step_timeline(shape, recipe)
        peaks: Counter[str] = Counter()
        for moment in timeline:
            peaks[moment.phase] = max(peaks[moment.phase], moment.total_bytes)
            assert held_bytes(moment, "kept", "recomputed") == moment.live_bytes["saved_activations"], recipe
            assert held_bytes(moment, "gradient") == moment.live_bytes["gradients"], recipe
        assert peaks == predicted.phase_peak_bytes, recipe
        top = max(timeline, key=lambda moment: moment.total_bytes)
        assert (top.live_bytes, top.phase) == (predicted.at_peak, predicted.peak_phase)
        last = [moment for moment in timeline if moment.phase == "forward"][-1]
        kept = {row.layer: 0 for row in predicted.rows}
        for tensor in last.held:
            if tensor.kind == "kept":
                kept[tensor.layer] += tensor.num_bytes
        assert kept == layer_bytes(list(predicted.rows)), recipe


@PLANS
def test_its_totals_are_those_of_a_traced_step(recipe):
    """Every total of the forward and backward passes occurs in the trace, in the same order."""
    traced = trace(build_step(GPT, recipe)).timeline
    totals = [
        total
        for step, phase, total in zip(traced.steps, traced.phases, traced.total_bytes, strict=True)
        if step == 2 and phase != "optimizer"
    ]
    seen = iter(totals)
    for moment in step_timeline(GPT, recipe):
        if moment.phase != "optimizer":
            assert moment.total_bytes in seen, moment


@PLANS
def test_further_microbatches_repeat_the_second(recipe):
    timeline = step_timeline(GPT, replace(recipe, num_microbatches=4))
    groups = {n: [moment for moment in timeline if moment.microbatch == n] for n in range(4)}
    assert len(groups[0]) == len(groups[1]) == len(groups[2]) == len(groups[3])
    assert [replace(moment, microbatch=1) for moment in groups[3]] == groups[1]
    assert [moment.microbatch for moment in timeline[-2:]] == [None, None]
    assert "gradients" not in {tensor.kind for tensor in groups[0][0].held}
    assert held_bytes(groups[1][0], "gradient") == predict_step(GPT, recipe).gradient_bytes


def recomputed_layers(recipe: StepRecipe) -> list[str]:
    return list(dict.fromkeys(moment.layer for moment in step_timeline(GPT, recipe) if moment.is_recomputed))


def test_what_is_recomputed_and_when():
    assert recomputed_layers(PLAIN) == []
    assert recomputed_layers(EVERY) == ["block 3", "block 2", "block 1", "block 0"]
    assert recomputed_layers(PAIRS) == ["block 2", "block 3", "block 0", "block 1"]
    assert {tensor.kind for moment in step_timeline(GPT, PLAIN) for tensor in moment.held} == {"kept", "gradient"}
    kinds = {(t.layer, t.kind) for moment in step_timeline(GPT, EVERY) for t in moment.held if t.kind != "gradient"}
    assert ("block 2", "recomputed") in kinds and ("head", "recomputed") not in kinds
    operators = {moment.operator for moment in step_timeline(GPT, SELECTIVE) if moment.is_recomputed}
    assert "gelu" in operators and "up projection" not in operators


def test_backward_visits_the_layers_from_the_last_to_the_first():
    backward = [moment for moment in step_timeline(GPT, PLAIN) if moment.phase == "backward"]
    layers = list(dict.fromkeys(moment.layer for moment in backward))
    assert layers == ["loss", "head", "block 3", "block 2", "block 1", "block 0", "embedding"]
    made = {tensor.layer: tensor.tensor for moment in backward for tensor in moment.held if tensor.kind == "gradient"}
    assert made["block 2"].startswith("d blocks.2.") and made["head"].startswith("d ")


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="kernels must be cpu or cuda"):
        step_timeline(GPT, PLAIN, kernels="tpu")
    with pytest.raises(ValueError, match=r"blocks_per_segment must be an integer from 1 to num_layers \(4\), got 5"):
        step_timeline(GPT, replace(EVERY, blocks_per_segment=5))
