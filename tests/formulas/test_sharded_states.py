"""Sharded states: the ZeRO paper's table, other tools' estimates, torch's own chunks, and traffic by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from hwlessons.formulas.collectives import bytes_sent_per_rank
from hwlessons.formulas.model_states import model_state_bytes
from hwlessons.formulas.sharded_states import fsdp_shard_bytes, local_sizes, zero_state_bytes, zero_traffic_bytes

CASES = ("zero_7.5B_dp4", "zero_7.5B_dp16", "zero_7.5B_dp256", "zero_7.5B_dp1024")


@pytest.mark.parametrize("name", CASES)
def test_the_7_5b_table(published, name):
    case = published(name)
    num_parameters, d = int(case.inputs["params"]), case.inputs["dp"]
    sharded = [
        zero_state_bytes(num_parameters, "bf16-master-adam", stage=stage, data_parallel_size=d) for stage in (1, 2, 3)
    ]
    case.check({f"zero{stage}": states.total_gb for stage, states in enumerate(sharded, start=1)})


def test_deepspeed_zero_2(published):
    case = published("ds_zero2_7B")
    recipe = "bf16-master-fp32-accumulation-adam"
    per_device = [
        zero_state_bytes(int(case.inputs["params"]), recipe, stage=2, data_parallel_size=d) for d in case.inputs["gpus"]
    ]
    case.check([states.total_gb for states in per_device])


def test_deepspeed_zero_3(published):
    case = published("ds_zero3_7B")
    recipe = "bf16-master-fp32-gradients-adam"
    live = 4 * case.inputs["largest_layer_params"] / 1e9
    per_device = [
        zero_state_bytes(int(case.inputs["params"]), recipe, stage=3, data_parallel_size=d) for d in case.inputs["gpus"]
    ]
    case.check([states.total_gb + live for states in per_device])


def test_megatron_distributed_optimizer(published):
    case = published("megatron_dist_opt")
    recipe = "bf16-master-fp32-gradients-adam"
    per_device = [zero_state_bytes(64, recipe, stage=1, data_parallel_size=d) for d in case.inputs["dp"]]
    case.check([float(states.total_bytes / 64) for states in per_device])


@pytest.mark.parametrize("recipe", ["fp32-adam", "bf16-master-adam", "fp32-sgd", "bf16-master-fp32-accumulation-adam"])
def test_one_device_holds_everything_and_many_devices_add_up(recipe):
    whole = model_state_bytes(1_003, recipe).total_bytes
    for stage in range(4):
        assert zero_state_bytes(1_003, recipe, stage=stage, data_parallel_size=1).total_bytes == whole
    parts = zero_state_bytes(1_003, recipe, stage=3, data_parallel_size=7)
    assert parts.total_bytes * 7 == whole
    assert parts.total_bytes.denominator == 7  # nothing is rounded


def test_traffic_of_the_stages_against_the_weights():
    psi, d = 2 * 10**6, 1000
    sent = [zero_traffic_bytes(psi, psi, stage=stage, data_parallel_size=d) for stage in range(4)]
    assert [bytes_sent / psi * Fraction(d, d - 1) for bytes_sent in sent] == [2, 2, 2, 3]
    assert zero_traffic_bytes(psi, psi, stage=3, data_parallel_size=1) == 0


def test_traffic_of_microbatches():
    scatter, gather = (bytes_sent_per_rank(op, 400, 4) for op in ("reduce_scatter", "all_gather"))
    sent = [
        zero_traffic_bytes(400, 400, stage=stage, data_parallel_size=4, num_microbatches=5) for stage in (0, 1, 2, 3)
    ]
    assert sent == [600, scatter + gather, 5 * scatter + gather, 5 * scatter + 10 * gather]


@pytest.mark.parametrize("d", [1, 2, 3, 4, 8, 64])
@pytest.mark.parametrize("sizes", [(1,), (7,), (64,), (50, 24), (9, 2, 5)])
def test_parts_are_torchs_chunks(sizes, d):
    chunks = [tuple(chunk.shape) for chunk in torch.empty(sizes).chunk(d)]
    for rank in range(d):
        mine = local_sizes(sizes, data_parallel_size=d, rank=rank)
        assert mine == (chunks[rank] if rank < len(chunks) else (0, *sizes[1:]))


def test_bytes_of_a_rank_by_hand():
    first, last = (fsdp_shard_bytes([(5, 3), (1,)], "fp32-adam", data_parallel_size=2, rank=rank) for rank in (0, 1))
    assert (first.weight_bytes, first.gradient_bytes, first.optimizer_state_bytes) == (40, 40, 2 * 40 + 8)
    assert (last.weight_bytes, last.gradient_bytes, last.optimizer_state_bytes) == (40, 40, 2 * 4 * 6 + 8)
    assert last.total_bytes == 40 + 40 + 56
    whole = model_state_bytes([(5, 3), (1,)], "fp32-adam")
    alone = fsdp_shard_bytes([(5, 3), (1,)], "fp32-adam", data_parallel_size=1, rank=0)
    assert alone.total_bytes == whole.total_bytes
    assert fsdp_shard_bytes([(4,)], "fp32-sgd", data_parallel_size=2, rank=1).optimizer_state_bytes == 0


def test_bad_input():
    with pytest.raises(ValueError, match="stage must be one of 0, 1, 2, 3, got 4"):
        zero_state_bytes(8, "fp32-adam", stage=4, data_parallel_size=2)
    with pytest.raises(ValueError, match="data_parallel_size must be an integer of at least 1, got 0"):
        zero_state_bytes(8, "fp32-adam", stage=1, data_parallel_size=0)
    with pytest.raises(ValueError, match="num_microbatches must be an integer of at least 1, got 0"):
        zero_traffic_bytes(8, 8, stage=1, data_parallel_size=2, num_microbatches=0)
    with pytest.raises(ValueError, match="rank must be from 0 to 1, got 2"):
        local_sizes((4,), data_parallel_size=2, rank=2)
    with pytest.raises(ValueError, match="at least one dimension"):
        local_sizes((), data_parallel_size=2, rank=0)
    with pytest.raises(ValueError, match="a tensor's size must be an integer of at least 1, got 0"):
        local_sizes((4, 0), data_parallel_size=2, rank=0)
    with pytest.raises(ValueError, match="without master weights, got 'bf16-master-adam'"):
        fsdp_shard_bytes([(4,)], "bf16-master-adam", data_parallel_size=2, rank=0)
