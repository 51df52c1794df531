"""Predicted steps of adapters on full and on packed bases beside tracked and traced ones, to the byte."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from _configurations import draw_configurations

from hwlessons.facts.shapes import TransformerShape, shape
from hwlessons.formulas.adapters import (
    PAIR_TABLE_BYTES,
    TARGETS,
    Adapters,
    adapter_parameter_count,
    adapter_tensors,
    packed_base_bytes,
)
from hwlessons.formulas.ledger import saved_activation_bytes
from hwlessons.formulas.parameters import parameter_count
from hwlessons.formulas.peak import optimizer_state_bytes, predict_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.memory import StepMemory, trace, track
from hwlessons.lab.steps import build_step

GPT = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=2, vocab_size=65, max_positions=16)
LLAMA = TransformerShape.llama_like(
    num_layers=2, width=32, num_heads=4, num_kv_heads=2, vocab_size=65, ffn_width=64, tied_embeddings=True
)
LORA = StepRecipe(2, 8, adapters=Adapters(4))


def draw(seed, count, formats):
    """Drawn steps with drawn targets; widths that 4-bit blocks divide where the base is packed."""
    rng = random.Random(f"{seed} adapters")
    for one, recipe in draw_configurations(seed, count):
        names = [name for name in TARGETS if name != "gate" or one.mlp == "swiglu"]
        adapters = Adapters(rng.choice([1, 4, 8]), tuple(rng.sample(names, rng.randint(1, len(names)))))
        base_format = rng.choice(formats)
        if base_format != "full":
            width = 8 * one.num_heads * rng.choice([1, 2])
            one = replace(one, width=width, ffn_width=rng.choice([width, 3 * width + 8]))
            if width * one.kv_width % 64:
                one = replace(one, num_kv_heads=one.num_heads)
        yield one, replace(recipe, adapters=adapters, base_format=base_format)


def phase_peak_bytes(memory: StepMemory) -> dict[str, int]:
    timeline, peaks = memory.timeline, {}
    for step, phase, total in zip(timeline.steps, timeline.phases, timeline.total_bytes, strict=True):
        if step == 2:
            peaks[phase] = max(peaks.get(phase, 0), total)
    return peaks


def assert_exact(one, recipe, measure):
    predicted, measured = predict_step(one, recipe), measure(build_step(one, recipe))
    assert predicted.saved_activation_bytes == measured.saved_activation_bytes, (one, recipe)
    assert predicted.parameter_bytes == measured.parameter_bytes, (one, recipe)
    assert predicted.gradient_bytes == measured.gradient_bytes, (one, recipe)
    assert predicted.optimizer_state_bytes == measured.optimizer_state_bytes, (one, recipe)
    assert predicted.phase_peak_bytes == phase_peak_bytes(measured), (one, recipe)
    assert predicted.peak_phase == measured.peak_phase, (one, recipe)
    assert predicted.at_peak["buffers"] == measured.at_peak["buffers"], (one, recipe)


@pytest.mark.parametrize("seed", [20261130, 11])
def test_drawn_steps_on_a_full_base(seed):
    for configuration in draw(seed, 20, ["full"]):
        assert_exact(*configuration, track)


@pytest.mark.parametrize("seed", [20261130, 12])
def test_drawn_steps_on_a_packed_base(seed):
    for configuration in draw(seed, 10, ["nf4", "nf4_double"]):
        assert_exact(*configuration, track)


def test_traced_steps():
    for configuration in draw(3, 3, ["full", "nf4", "nf4_double"]):
        assert_exact(*configuration, trace)


def test_categories_at_the_peak():
    autocast = {"precision": "autocast_bf16"}
    one_token = {"microbatch": 1, "sequence": 1}  # where dequantising is the peak
    plans = ({}, {"base_format": "nf4"}, autocast, {"base_format": "nf4_double"}, autocast | {"base_format": "nf4"})
    for options in (*plans, one_token | autocast | {"base_format": "nf4"}):
        recipe = replace(LORA, **options)
        for one in (GPT, LLAMA):
            predicted, measured = predict_step(one, recipe), track(build_step(one, recipe))
            assert predicted.at_peak == measured.at_peak
            assert predicted.phase_peak_bytes == phase_peak_bytes(measured)
            assert sum(predicted.at_peak.values()) == predicted.peak_bytes


def test_states_by_hand():
    trained = adapter_parameter_count(GPT, LORA.adapters)
    predicted = predict_step(GPT, LORA)
    assert predicted.parameter_bytes == 4 * (parameter_count(GPT).total + trained)
    assert predicted.gradient_bytes == 4 * trained
    assert predicted.optimizer_state_bytes == optimizer_state_bytes(GPT, LORA)
    assert predicted.optimizer_state_bytes == 8 * trained + 4 * len(adapter_tensors(GPT, LORA.adapters))


def test_saved_activations_by_hand():
    """What a frozen layer no longer keeps: its input, unless an adapter reads it; the embedding its indices."""
    b, s, h, f, r = 2, 8, 32, 128, 4
    everything = saved_activation_bytes(GPT, replace(LORA, adapters=None))
    # first block: nothing before the adapters needs a gradient, so its first norm keeps nothing (input, mean, rstd)
    gone = 4 * b * s * h + 2 * 4 * b * s + 8 * s  # and the position indices
    # every block: inputs of output projection, up and down; attention's own output stays, it is kept by attention
    gone += GPT.num_layers * (4 * b * s * h + 4 * b * s * f)
    gone += 4 * b * s * h  # input of the head
    added = GPT.num_layers * 2 * 4 * b * s * r  # A(x) of query and value
    assert saved_activation_bytes(GPT, LORA) == everything - gone + added


def test_packed_bases_by_hand():
    num_values = GPT.num_layers * (4 * 32 * 32 + 2 * 32 * 128)
    num_blocks = num_values // 64
    assert packed_base_bytes(GPT, "nf4") == num_values // 2 + 4 * num_blocks + PAIR_TABLE_BYTES
    # every matrix has fewer than 256 blocks: one scale of scales and one mean each
    double = num_values // 2 + num_blocks + 8 * 6 * GPT.num_layers + PAIR_TABLE_BYTES
    assert packed_base_bytes(GPT, "nf4_double") == double
    for base_format in ("nf4", "nf4_double"):
        predicted = predict_step(GPT, replace(LORA, base_format=base_format))
        assert predicted.at_peak["buffers"] == packed_base_bytes(GPT, base_format)


def test_seven_billion_parameters_in_four_bits():
    seven = shape("llama-7b")
    matrices = seven.num_layers * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    bits = {name: 8 * (packed_base_bytes(seven, name) - PAIR_TABLE_BYTES) / matrices for name in ("nf4", "nf4_double")}
    assert bits["nf4"] == 4.5
    assert bits["nf4_double"] == pytest.approx(4 + 8 / 64 + 32 / (64 * 256), abs=1e-4)


def test_bad_input():
    with pytest.raises(ValueError, match="base_format must be full where there are no adapters, got 'nf4'"):
        StepRecipe(1, 1, base_format="nf4")
    with pytest.raises(ValueError, match="base_format must be one of full, nf4, nf4_double, got 'int4'"):
        replace(LORA, base_format="int4")
    with pytest.raises(ValueError, match=r"adapters must be Adapters\(...\) or None, got 8"):
        replace(LORA, adapters=8)
    with pytest.raises(ValueError, match="whose gelu block has no gate"):
        predict_step(GPT, replace(LORA, adapters=Adapters(4, ("gate",))))
    narrow = replace(GPT, width=4, ffn_width=16)
    for refuse in (packed_base_bytes, lambda one, name: predict_step(one, replace(LORA, base_format=name))):
        with pytest.raises(ValueError, match=r"blocks.0.attention.query must have a multiple of 64 values .*, got 16"):
            refuse(narrow, "nf4")
    with pytest.raises(ValueError, match="unknown block format 'nf5'"):
        packed_base_bytes(GPT, "nf5")
