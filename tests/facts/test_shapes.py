"""The catalogue of shapes: sources, published totals, and refusals of shapes that make no sense."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import date
from importlib.resources import files

import pytest

from hwlessons.facts.shapes import TransformerShape, load_shapes, shape
from hwlessons.formulas.parameters import parameter_count

# Totals that are not among the published cases: model cards and papers, read on 2026-11-30.
OTHER_TOTALS = {
    "gpt3-175b": (174_600_000_000, 5e-5),  # arXiv:2005.14165 table D.1, in millions
    "llama-65b": (65_200_000_000, 2e-3),  # arXiv:2302.13971 table 2: 65.2B
    "llama-3-70b": (70_553_706_496, 0),  # model card of Meta-Llama-3-70B: 70.6B
    "llama-3.2-1b": (1_235_814_400, 0),  # model card of Llama-3.2-1B: 1.23B
    "tinyllama-1.1b": (1_100_048_384, 0),  # arXiv:2401.02385: 1.1B
    "smollm2-135m": (134_515_008, 0),  # model card of SmolLM2-135M: 135M
}


def test_every_entry_has_a_source_and_the_day_it_was_read():
    entries = tomllib.loads(files("hwlessons.facts").joinpath("data/shapes.toml").read_text("utf8"))
    for name, entry in entries.items():
        assert len(entry["source"]) > 20, name
        assert isinstance(entry["read_on"], date), name


def test_every_shape_is_checked_against_a_published_total(cases):
    checked = set(OTHER_TOTALS)
    for case in cases.values():
        if case.topic == "parameter count":
            checked |= set(case.inputs.get("models", [case.inputs.get("model")]))
    assert set(load_shapes()) == checked


@pytest.mark.parametrize("name", OTHER_TOTALS)
def test_other_published_totals(name):
    total, rel_tol = OTHER_TOTALS[name]
    assert parameter_count(shape(name)).total == pytest.approx(total, rel=rel_tol, abs=0)


def test_an_unknown_name_lists_the_catalogue():
    with pytest.raises(ValueError, match="unknown model shape 'gpt5'; the catalogue has gpt2-large"):
        shape("gpt5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers must be an integer of at least 1, got 0"),
        ({"width": 768.0}, "width must be an integer of at least 1, got 768.0"),
        ({"vocab_size": True}, "vocab_size must be an integer of at least 1, got True"),
        ({"num_heads": 7}, r"num_heads must divide width \(768\), got 7"),
        ({"num_kv_heads": 5}, r"num_kv_heads must divide num_heads \(12\), got 5"),
        ({"mlp": "relu"}, "mlp must be one of gelu, swiglu, got 'relu'"),
        ({"max_positions": 0}, "learned positions need max_positions of at least 1, got 0"),
        ({"positions": "rotary"}, "rotary positions need an even head_dim and max_positions=0"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(shape("gpt2-small"), **change)


def test_the_two_styles():
    gpt2 = TransformerShape.gpt2_like(num_layers=12, width=768, num_heads=12, vocab_size=50257, max_positions=1024)
    assert replace(gpt2, name="gpt2-small") == shape("gpt2-small")
    llama = TransformerShape.llama_like(num_layers=32, width=4096, num_heads=32, vocab_size=32000, ffn_width=11008)
    assert replace(llama, name="llama-7b") == shape("llama-7b")
    assert shape("mistral-7b").kv_width == 1024 and shape("mistral-7b").head_dim == 128
