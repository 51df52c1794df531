"""Parameter counts against published totals and against the real modules, built on the meta device."""

from __future__ import annotations

import pytest
import torch

from hwlessons.facts.shapes import TransformerShape, load_shapes, shape
from hwlessons.formulas.parameters import (
    largest_parameter_tensor,
    num_parameter_tensors,
    parameter_count,
    parameter_tensors,
)
from hwlessons.lab.transformer import Transformer

SMALL = {
    "gpt2-like": TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=4, vocab_size=64, max_positions=16),
    "gpt2-like, untied, narrow": TransformerShape.gpt2_like(
        num_layers=1, width=16, num_heads=2, vocab_size=33, max_positions=8, ffn_width=40, tied_embeddings=False
    ),
    "llama-like, grouped": TransformerShape.llama_like(
        num_layers=3, width=24, num_heads=6, num_kv_heads=2, vocab_size=50, ffn_width=56
    ),
}
SHAPES = SMALL | {name: shape(name) for name in ("gpt2-small", "pythia-160m", "llama-7b", "llama-3-8b", "smollm2-135m")}


@pytest.mark.parametrize("id_", ["params_family_gpt2", "params_family_pythia"])
def test_families(published, id_):
    case = published(id_)
    counts = {name: parameter_count(shape(name)) for name in case.inputs["models"]}
    case.check({name: {"total": c.total, "non_embedding": c.non_embedding} for name, c in counts.items()})


@pytest.mark.parametrize(
    "id_",
    [
        "params_llama-7b",
        "params_llama-13b",
        "params_llama-33b",
        "params_llama-2-70b",
        "params_llama-3-8b",
        "params_mistral-7b",
    ],
)
def test_published_totals(published, id_):
    case = published(id_)
    case.check(parameter_count(shape(case.inputs["model"])).total)


@pytest.mark.parametrize("name", SHAPES)
def test_tensors_equal_the_real_modules_in_name_size_and_order(name):
    with torch.device("meta"):
        model = Transformer(SHAPES[name])
    expected = [(n, tuple(p.shape)) for n, p in model.named_parameters()]
    assert [(t.name, t.sizes) for t in parameter_tensors(SHAPES[name])] == expected
    assert num_parameter_tensors(SHAPES[name]) == len(expected)


@pytest.mark.parametrize("name", [*SMALL, *load_shapes()])
def test_the_closed_form_equals_the_sum_over_tensors_part_by_part(name):
    shape_ = SMALL.get(name) or shape(name)
    count = parameter_count(shape_)
    tensors = parameter_tensors(shape_)

    def total(*needles: str) -> int:
        return sum(t.num_values for t in tensors if any(needle in t.name for needle in needles))

    assert count.embedding == total("token_embedding")
    assert count.position == total("position_embedding")
    assert count.attention == total(".attention.")
    assert count.feed_forward == total(".feed_forward.")
    assert count.block_norms == total("attention_norm", "feed_forward_norm")
    assert count.final_norm == total("final_norm")
    assert count.head == total("head.")
    assert count.total == total("")


def test_the_textbook_block():
    h, count = 768, parameter_count(shape("gpt2-small"))
    assert count.blocks == 12 * (12 * h * h + 13 * h)


def test_the_largest_tensor_is_the_first_of_equals():
    assert largest_parameter_tensor(shape("llama-7b")).name == "token_embedding.weight"
    assert largest_parameter_tensor(shape("llama-2-70b")).name == "token_embedding.weight"
    assert largest_parameter_tensor(shape("llama-2-70b")).num_values == 32000 * 8192
    assert largest_parameter_tensor(SMALL["gpt2-like"]).name == "blocks.0.feed_forward.up.weight"
