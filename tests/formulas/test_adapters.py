"""Parameters of adapters, against published numbers, counts by hand and the real modules."""

from __future__ import annotations

import pytest

from hwlessons.facts.shapes import TransformerShape, shape
from hwlessons.formulas.adapters import (
    TARGETS,
    Adapters,
    adapter_parameter_count,
    adapter_tensors,
    num_adapter_parameters,
    trainable_tensors,
)
from hwlessons.formulas.parameters import parameter_tensors

GPT = TransformerShape.gpt2_like(num_layers=2, width=16, num_heads=2, vocab_size=65, max_positions=16)
LLAMA = TransformerShape.llama_like(
    num_layers=3, width=24, num_heads=6, num_kv_heads=2, vocab_size=50, ffn_width=56, tied_embeddings=True
)


def test_one_matrix_of_gpt3(published):
    case = published("lora_gpt3_one_matrix_r4")
    d, r = case.inputs["d"], case.inputs["r"]
    case.check({"lora": num_adapter_parameters(d, d, r), "full": d * d})


@pytest.mark.parametrize(
    ("id_", "name", "targets"),
    [
        ("lora_gpt2m_r4_qv", "gpt2-medium", ("query", "value")),
        ("lora_llama7b_r8_qv", "llama-7b", ("query", "value")),
        ("lora_llama7b_r64_all_linear", "llama-7b", TARGETS),
    ],
)
def test_published_shapes(published, id_, name, targets):
    case, one = published(id_), shape(name)
    assert one.num_layers == case.inputs["layers"]
    assert one.width == case.inputs.get("d", case.inputs.get("h"))
    adapters = Adapters(case.inputs["r"], targets)
    case.check(adapter_parameter_count(one, adapters))
    case.check(sum(tensor.num_values for tensor in adapter_tensors(one, adapters)))


def test_by_hand():
    # query 24 -> 24, key and value 24 -> 8, output 24 -> 24, gate and up 24 -> 56, down 56 -> 24, in three blocks
    sums = {"query": 48, "key": 32, "value": 32, "output": 48, "gate": 80, "up": 80, "down": 80}
    for target, total in sums.items():
        assert adapter_parameter_count(LLAMA, Adapters(5, (target,))) == 3 * 5 * total
    assert adapter_parameter_count(LLAMA, Adapters(5, TARGETS)) == 3 * 5 * sum(sums.values())


def test_trainable_tensors():
    assert trainable_tensors(GPT, None) == parameter_tensors(GPT)
    names = [tensor.name for tensor in trainable_tensors(GPT, Adapters(2, ("value", "down")))]
    assert names[:4] == [
        "blocks.0.attention.value.lora_a",
        "blocks.0.attention.value.lora_b",
        "blocks.0.feed_forward.down.lora_a",
        "blocks.0.feed_forward.down.lora_b",
    ]
    assert len(names) == 8


def test_bad_input():
    for rank in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=f"rank must be an integer of at least 1, got {rank!r}"):
            Adapters(rank)
    for targets in ((), ("q",), ("query", "query"), "query"):
        with pytest.raises(ValueError, match="targets must be a tuple of different names of query, key"):
            Adapters(4, targets)
    with pytest.raises(ValueError, match="whose gelu block has no gate"):
        adapter_tensors(GPT, Adapters(4, ("gate",)))
    with pytest.raises(ValueError, match="whose gelu block has no gate"):
        adapter_parameter_count(GPT, Adapters(4, ("gate",)))
    with pytest.raises(ValueError, match="out_features must be an integer of at least 1, got 0"):
        num_adapter_parameters(4, 0, 1)
