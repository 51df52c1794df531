"""Published activation formulas against the numbers their papers give."""

from __future__ import annotations

import pytest

from hwlessons.formulas.published_activations import (
    megatron_layer_bytes,
    score_crossover_sequence_length,
    zero_activation_bytes,
)


def sizes_of(case):
    s, b, h, a = (case.inputs[symbol] for symbol in "sbha")
    return {"sequence_length": s, "microbatch_size": b, "width": h, "num_heads": a}


@pytest.mark.parametrize("id_", ["act_gpt3_layer", "act_mtnlg_layer"])
def test_one_layer(published, id_):
    case = published(id_)
    case.check(megatron_layer_bytes(**sizes_of(case)))


def test_tensor_and_sequence_parallelism_and_recomputation(published):
    case = published("act_gpt3_tp8")
    sizes = sizes_of(case) | {"tensor_parallel_size": case.inputs["t"]}
    case.check(
        {
            "tp": megatron_layer_bytes(**sizes),
            "tp_sp": megatron_layer_bytes(**sizes, sequence_parallel=True),
            "tp_sp_selective": megatron_layer_bytes(**sizes, sequence_parallel=True, recomputation="selective"),
            "full_recompute": megatron_layer_bytes(**sizes, recomputation="full"),
        }
    )


def test_sequence_length_where_scores_are_half(published):
    case = published("act_crossover_seq")
    case.check([float(score_crossover_sequence_length(head_dim)) for head_dim in case.inputs["head_dim"]])
    # Half of the bytes are scores there: with s = 6.8 * 640 the selective formula drops exactly half.
    sizes = {"sequence_length": 4352, "microbatch_size": 1, "width": 6400, "num_heads": 10}
    assert megatron_layer_bytes(**sizes) == 2 * megatron_layer_bytes(**sizes, recomputation="selective")


def test_zero_rule_of_thumb(published):
    case = published("act_gpt2_1.5B_60GB")
    i = case.inputs
    num_bytes = zero_activation_bytes(
        sequence_length=i["s"],
        microbatch_size=i["b"],
        width=i["h"],
        num_layers=i["L"],
        values_per_feature=i["elements_per"],
        bytes_per_value=i["bytes"],
    )
    case.check(num_bytes / 1e9)
    assert num_bytes == 60_397_977_600


SIZES = {"sequence_length": 8, "microbatch_size": 1, "width": 16, "num_heads": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"microbatch_size": 0}, "microbatch_size must be an integer of at least 1, got 0"),
        ({"sequence_length": 8.5}, "sequence_length must be an integer of at least 1, got 8.5"),
        ({"num_heads": 3}, r"num_heads must divide width \(16\), got 3"),
        ({"tensor_parallel_size": 8}, r"tensor_parallel_size must divide width \(16\) and num_heads \(4\), got 8"),
        ({"recomputation": "some"}, "recomputation must be none, selective or full, got 'some'"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        megatron_layer_bytes(**SIZES | change)


def test_bad_head_dim():
    with pytest.raises(ValueError, match="head_dim must be an integer of at least 1, got -1"):
        score_crossover_sequence_length(-1)
