"""Generation with a KV cache gives the tokens and logits of generation without, from a cache of the predicted size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.kv_cache import kv_cache_bytes
from hwlessons.lab.generation import KVCache, generate, next_logits
from hwlessons.lab.transformer import Transformer

GPT = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=4, vocab_size=64, max_positions=24)
LLAMA = TransformerShape.llama_like(num_layers=3, width=32, num_heads=4, vocab_size=64, ffn_width=48)
GROUPED, ONE_KV_HEAD = replace(LLAMA, num_kv_heads=2), replace(LLAMA, num_kv_heads=1)
SHAPES = pytest.mark.parametrize("one", [GPT, LLAMA, GROUPED, ONE_KV_HEAD], ids=["gpt2", "llama", "grouped", "one"])
TOKENS = torch.randint(64, (3, 12), generator=torch.Generator().manual_seed(0))


def make(one):
    torch.manual_seed(0)
    model = Transformer(one).double()
    for parameter in model.parameters():  # fresh weights are so small that every position looks alike
        parameter.data *= 5
    return model.eval()


@SHAPES
@pytest.mark.parametrize("chunks", [(12,), (1,) * 12, (5, 1, 1, 5), (3, 4, 5)], ids=str)
def test_logits_equal_the_whole_forward(one, chunks):
    model = make(one)
    cache = KVCache(one, 3, 12, dtype=torch.float64)
    parts = [next_logits(model, part, cache) for part in TOKENS.split(chunks, 1)]
    # rotary angles are computed in fp32 for both
    torch.testing.assert_close(torch.cat(parts, 1), model(TOKENS).detach(), rtol=1e-10, atol=1e-10)
    assert cache.length == 12


@SHAPES
def test_the_same_tokens_with_and_without(one):
    model = make(one)
    for length in (1, 5):
        with_cache = generate(model, TOKENS[:, :length], 12)
        assert torch.equal(with_cache, generate(model, TOKENS[:, :length], 12, cache=False))
        assert with_cache.shape == (3, length + 12) and torch.equal(with_cache[:, :length], TOKENS[:, :length])
    assert len(set(map(tuple, with_cache.tolist()))) == 3  # the continuation depends on the prompt


@SHAPES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_the_predicted_ones(one, dtype):
    for batch, context in ((1, 1), (2, 7), (5, 24)):
        cache = KVCache(one, batch, context, dtype=dtype)
        assert cache.num_bytes == kv_cache_bytes(one, batch=batch, context=context, itemsize=dtype.itemsize)


def test_the_mode_of_the_model_comes_back():
    model = make(GPT).train()
    generate(model, TOKENS[:, :2], 2)
    assert model.training


def test_generation_switches_dropout_off():
    torch.manual_seed(0)
    model = Transformer(GPT, dropout=0.5)
    for cache in (True, False):
        drawn = [generate(model.train(), TOKENS[:, :2], 8, cache=cache) for _ in range(2)]
        assert all(torch.equal(tokens, generate(model.eval(), TOKENS[:, :2], 8)) for tokens in drawn)


def test_a_full_cache_refuses_one_more_token():
    model = make(GPT)
    cache = KVCache(GPT, 3, 4, dtype=torch.float64)
    next_logits(model, TOKENS[:, :4], cache)
    with pytest.raises(ValueError, match="the cache has room for 4 tokens, got 5"):
        next_logits(model, TOKENS[:, :1], cache)
    assert cache.length == 4
    full = KVCache(GPT, 3, 24, dtype=torch.float64)
    for _ in range(2):
        next_logits(model, TOKENS, full)
    with pytest.raises(ValueError, match=r"context must be at most max_positions \(24\), got 25"):
        next_logits(model, TOKENS[:, :1], full)


def test_generation_fills_its_cache(monkeypatch):
    made = []

    class Kept(KVCache):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr("hwlessons.lab.generation.KVCache", Kept)
    generate(make(GPT), TOKENS[:, :5], 7)
    assert [(cache.length, cache.keys.shape[3]) for cache in made] == [(11, 11)]


def test_bad_input():
    model = make(GPT)
    with pytest.raises(
        ValueError, match=r"prompt must have shape \(batch, tokens\) with at least one .*, got \(0, 4\)"
    ):
        generate(model, TOKENS[:0, :4], 2)
    with pytest.raises(ValueError, match=r"prompt must have shape .*, got \(12,\)"):
        generate(model, TOKENS[0], 2)
    with pytest.raises(ValueError, match="num_new_tokens must be an integer of at least 1, got 0"):
        generate(model, TOKENS, 0)
    for cache in (True, False):
        with pytest.raises(ValueError, match=r"context must be at most max_positions \(24\), got 25"):
            generate(model, TOKENS, 13, cache=cache)
    with pytest.raises(ValueError, match="batch must be an integer of at least 1, got 0"):
        KVCache(GPT, 0, 4)
    with pytest.raises(ValueError, match="capacity must be an integer of at least 1, got 0"):
        KVCache(GPT, 1, 0)
    with pytest.raises(ValueError, match=r"context must be at most max_positions \(24\), got 25"):
        KVCache(GPT, 1, 25)
    cache = KVCache(GPT, 3, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="the cache has room for 4 tokens, got 12"):
        next_logits(model, TOKENS, cache)
    with pytest.raises(ValueError, match="the cache is for a batch of 3, got 2"):
        next_logits(model, TOKENS[:2, :2], cache)
