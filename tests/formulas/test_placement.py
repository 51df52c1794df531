"""Placements: shares against what torch really splits, traffic by hand, order and errors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

import pytest

from hwlessons.facts.shapes import TransformerShape, shape
from hwlessons.formulas.ledger import saved_rows
from hwlessons.formulas.mesh_shares import stage_saved_bytes, stage_tensors
from hwlessons.formulas.mesh_traffic import Machine, mesh_traffic, tensor_parallel_bytes
from hwlessons.formulas.parameters import parameter_count
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.placement import fastest_that_fits, placements
from hwlessons.formulas.published_activations import megatron_layer_bytes
from hwlessons.formulas.sharded_states import zero_traffic_bytes
from hwlessons.formulas.step_recipe import StepRecipe

TINY = TransformerShape.llama_like(num_layers=4, width=64, num_heads=8, num_kv_heads=4, vocab_size=96, ffn_width=160)
TIED = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=4, vocab_size=51, max_positions=16)
RECIPE = StepRecipe(2, 16)
HOST = Machine(10**9, 8, 1e12, 4e9, 4, 1e9)


def num_values(tensors) -> int:
    return sum(map(prod, tensors))


@pytest.mark.parametrize("model", [TINY, TIED])
def test_stages_and_parts_make_up_the_model(model):
    total = parameter_count(model).total
    assert num_values(stage_tensors(model)[0]) == total
    stages = stage_tensors(model, pipeline_size=2)
    twice = model.vocab_size * model.width if model.tied_embeddings else 0
    assert sum(map(num_values, stages)) == total + twice
    by_hand = 2 * model.width * (1 if model.norm == "rmsnorm" else 2) * model.num_layers  # norms of blocks
    by_hand += parameter_count(model).final_norm + parameter_count(model).position
    if model.has_biases:
        by_hand += 2 * model.width * model.num_layers  # biases of output and down
    if model.vocab_size % 2:
        by_hand += parameter_count(model).embedding
    (halves,) = stage_tensors(model, tensor_parallel_size=2)
    assert 2 * num_values(halves) == total + by_hand


def test_activations_of_the_split_rows_are_megatrons_share():
    """The rows that belong to heads and to the feed-forward width are halved, as in equation 2; so are the scores."""
    sizes = dict(sequence_length=16, microbatch_size=2, width=64, num_heads=8)
    one = megatron_layer_bytes(**sizes) - megatron_layer_bytes(**sizes, recomputation="selective")
    two = megatron_layer_bytes(**sizes, tensor_parallel_size=2)
    two -= megatron_layer_bytes(**sizes, tensor_parallel_size=2, recomputation="selective")
    gpt2 = TransformerShape.gpt2_like(num_layers=1, width=64, num_heads=8, vocab_size=96, max_positions=16)
    rows = [row for row in saved_rows(gpt2, replace(RECIPE, attention="materialised")) if row.layer == "block 0"]
    halves = [stage_saved_bytes([row], gpt2, tensor_parallel_size=2)[0] for row in rows]
    scores = [(row, half) for row, half in zip(rows, halves, strict=True) if "s s" in row.dims and "a" in row.dims]
    assert one == 2 * two
    assert all(2 * half == row.num_bytes for row, half in scores)
    split = {row.tensor for row, half in zip(rows, halves, strict=True) if half < row.num_bytes}
    assert split == {
        "queries copy",
        "keys copy",
        "probabilities",
        "values copy",
        "attention output copy",
        "up projection",
        "gelu",
    }


def test_microbatches_under_way_on_each_stage():
    rows = saved_rows(TINY, RECIPE)
    whole = stage_saved_bytes(rows, TINY)
    assert whole == [sum(row.num_bytes for row in rows)]
    one_each = stage_saved_bytes(rows, TINY, pipeline_size=4, num_microbatches=1)
    assert sum(one_each) == whole[0]
    many = stage_saved_bytes(rows, TINY, pipeline_size=4, num_microbatches=8)
    assert many == [held * alive for held, alive in zip(one_each, (4, 3, 2, 1), strict=True)]


def test_traffic_by_hand():
    assert tensor_parallel_bytes(TINY, RECIPE, 2) == 4 * 4 * (2 * 16 * 64 * 4)  # 4 layers, 4 all-reduces, factor 1
    assert tensor_parallel_bytes(TINY, replace(RECIPE, checkpointing=True), 2) == 4 * 6 * (2 * 16 * 64 * 4)
    assert tensor_parallel_bytes(TINY, replace(RECIPE, precision="bf16"), 4) == 4 * 4 * (2 * 16 * 64 * 2) * Fraction(
        3, 2
    )
    mesh = mesh_traffic(TINY, RECIPE, HOST, mesh=(2, 2, 2), zero_stage=1, num_microbatches=3)
    held = 4 * max(map(num_values, stage_tensors(TINY, tensor_parallel_size=2, pipeline_size=2)))
    assert mesh.data_bytes == zero_traffic_bytes(held, held, stage=1, data_parallel_size=2)
    assert mesh.tensor_bytes == 3 * tensor_parallel_bytes(TINY, RECIPE, 2) / 2
    assert mesh.pipeline_bytes == 3 * 2 * 16 * 64 * 4
    assert mesh.data_seconds == float(mesh.data_bytes) / 4e9  # four adjacent devices: one host
    assert mesh.pipeline_seconds == float(mesh.pipeline_bytes) / 1e9  # eight: between hosts
    across = mesh_traffic(TINY, RECIPE, HOST, mesh=(2, 4, 1), zero_stage=0, num_microbatches=1)
    assert across.data_seconds == float(across.data_bytes) / 1e9  # its two replicas are on two hosts
    assert mesh_traffic(TINY, RECIPE, HOST, mesh=(1, 1, 4), zero_stage=0, num_microbatches=1).pipeline_bytes == 2 * 8192
    assert mesh_traffic(TINY, RECIPE, HOST, mesh=(1, 1, 1), zero_stage=0, num_microbatches=1).total_bytes == 0


def test_one_device_is_the_predicted_step():
    alone = replace(HOST, num_devices=1, devices_per_host=1)
    (only,) = placements(TINY, RECIPE, alone, global_batch=2)
    assert only.peak_bytes == predict_step(TINY, RECIPE).peak_bytes
    assert only.step_seconds == only.compute_seconds == 6 * parameter_count(TINY).total * 32 / 1e12
    assert only.name == "d1 t1 p1"
    (again,) = placements(TINY, replace(RECIPE, checkpointing=True), alone, global_batch=2)
    assert again.compute_seconds == pytest.approx(only.compute_seconds * 8 / 6, rel=1e-15)


def test_every_placement_fits_or_says_what_is_in_the_way():
    found = placements(TINY, RECIPE, HOST, global_batch=16)
    assert all(one.fits for one in found)
    assert {(o.data_parallel_size, o.tensor_parallel_size, o.pipeline_size) for o in found} == {
        (d, t, p) for d in (1, 2, 4, 8) for t in (1, 2, 4) for p in (1, 2, 4) if d * t * p == 8
    }
    assert fastest_that_fits(found) is found[0]
    middle = sorted(one.peak_bytes for one in found)[len(found) // 2]
    tight = placements(TINY, RECIPE, replace(HOST, device_bytes=middle), global_batch=16)
    assert [one.fits for one in tight] == sorted((one.fits for one in tight), reverse=True)
    assert {one.fits for one in tight} == {True, False}
    best = fastest_that_fits(tight)
    assert best.step_seconds == min(one.step_seconds for one in tight if one.fits)
    assert best.reason.startswith("fits: ")
    assert tight[-1].reason.startswith("does not fit: ")
    with pytest.raises(ValueError, match=r"no placement fits; the smallest is d.*does not fit: "):
        fastest_that_fits(placements(TINY, RECIPE, replace(HOST, device_bytes=1000), global_batch=16))


def test_each_stage_of_sharding_needs_less_and_the_bubble_is_its_formula():
    found = {one.name: one for one in placements(TINY, RECIPE, HOST, global_batch=16)}
    peaks = [found[f"d8 t1 p1{stage}"].at_peak for stage in ("", ", ZeRO-1", ", ZeRO-2", ", ZeRO-3")]
    states = [sum(peak[name] for name in ("parameters", "gradients", "optimizer_state")) for peak in peaks]
    assert states == sorted(states, reverse=True)
    assert len(set(states)) == 4
    in_backward = {o.name: o for o in placements(TINY, StepRecipe(4, 16, optimizer="sgd"), HOST, global_batch=32)}
    halved, kept = (in_backward[name].at_peak["saved_activations"] for name in ("d4 t2 p1", "d8 t1 p1"))
    assert 0.6 * kept < halved < 0.8 * kept  # the loss's part, which is not split, is at its largest here
    autocast = StepRecipe(4, 16, optimizer="sgd", precision="autocast_bf16")
    casts = {o.name: o.at_peak["cached_casts"] for o in placements(TINY, autocast, HOST, global_batch=32)}
    assert 0 < casts["d4 t2 p1"] < 0.6 * casts["d8 t1 p1"]
    piped = found["d2 t1 p4"]
    assert piped.num_microbatches == 4
    assert piped.bubble_seconds == piped.compute_seconds * 3 / 4
    assert found["d8 t1 p1"].traffic.data_seconds == float(found["d8 t1 p1"].traffic.data_bytes) / 1e9


def test_a_7b_model_does_not_fit_until_it_is_sharded():
    machine = Machine(80 * 10**9, 4, 1e15, 450e9, 4, 50e9)
    found = {one.name: one for one in placements(shape("llama-7b"), StepRecipe(1, 2048), machine, global_batch=4)}
    assert not found["d4 t1 p1"].fits
    assert found["d4 t1 p1"].largest_category == "optimizer_state"
    assert found["d4 t1 p1, ZeRO-3"].fits


def test_bad_input():
    with pytest.raises(ValueError, match=r"must divide num_kv_heads \(4\) and ffn_width \(160\), got 8"):
        stage_tensors(TINY, tensor_parallel_size=8)
    with pytest.raises(ValueError, match=r"pipeline_size must divide num_layers \(4\), got 3"):
        stage_tensors(TINY, pipeline_size=3)
    with pytest.raises(ValueError, match="tensor_parallel_size must be an integer of at least 1, got 0"):
        stage_tensors(TINY, tensor_parallel_size=0)
    with pytest.raises(ValueError, match="num_microbatches must be an integer of at least 1, got 0"):
        stage_saved_bytes([], TINY, num_microbatches=0)
    with pytest.raises(ValueError, match=r"no mesh of 8 devices divides .* the batch of 3 sequences"):
        placements(TINY, RECIPE, HOST, global_batch=3)
    with pytest.raises(ValueError, match="flops_per_second must be positive, got 0"):
        replace(HOST, flops_per_second=0)
    with pytest.raises(ValueError, match=r"devices_per_host must divide num_devices \(8\), got 3"):
        replace(HOST, devices_per_host=3)
