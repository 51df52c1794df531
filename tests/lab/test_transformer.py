"""The small transformer: published sizes, and mathematics that both attention paths and both styles must share."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hwlessons.facts.shapes import TransformerShape, load_shapes, shape
from hwlessons.formulas.parameters import parameter_count, parameter_tensors
from hwlessons.lab.transformer import RMSNorm, Transformer, causal_mask, rotary_table, rotate

GPT = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=4, vocab_size=64, max_positions=16)
LLAMA = TransformerShape.llama_like(num_layers=2, width=32, num_heads=4, vocab_size=64, ffn_width=48, num_kv_heads=2)
TOKENS = torch.randint(64, (3, 12), generator=torch.Generator().manual_seed(0))


def make(shape, **options):
    torch.manual_seed(0)
    return Transformer(shape, **options)


@pytest.mark.parametrize("name", load_shapes())
def test_published_shapes(name):
    with torch.device("meta"):
        model = Transformer(shape(name))
    assert sum(p.numel() for p in model.parameters()) == parameter_count(shape(name)).total
    found = [(n, tuple(p.shape)) for n, p in model.named_parameters()]
    assert found == [(tensor.name, tensor.sizes) for tensor in parameter_tensors(shape(name))]


@pytest.mark.parametrize("style", [GPT, LLAMA], ids=["GPT-2-like", "Llama-like"])
class TestBothStyles:
    def test_logits(self, style):
        logits = make(style)(TOKENS)
        assert logits.shape == (3, 12, 64)
        # a fresh model knows nothing: near log(64) per token
        loss = F.cross_entropy(logits.flatten(0, 1), (TOKENS.flatten() + 1) % 64)
        assert loss.item() == pytest.approx(math.log(64), rel=0.02)

    def test_fused_and_materialised_attention_agree(self, style):
        losses, gradients = [], []
        for attention in ("fused", "materialised"):
            model = make(style, attention=attention).double()
            loss = F.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.flatten())
            loss.backward()
            losses.append(loss.item())
            gradients.append([p.grad for p in model.parameters()])
        assert losses[0] == pytest.approx(losses[1], rel=1e-12)
        for first, second in zip(*gradients, strict=True):
            torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-12)

    @pytest.mark.parametrize("attention", ["fused", "materialised"])
    def test_no_token_sees_the_future(self, style, attention):
        model = make(style, attention=attention).double()
        changed = TOKENS.clone()
        changed[:, 7:] = (changed[:, 7:] + 1) % 64
        before, after = model(TOKENS), model(changed)
        torch.testing.assert_close(before[:, :7], after[:, :7])
        assert not torch.allclose(before[:, 7:], after[:, 7:])

    def test_order_matters(self, style):
        # in one block and without positions the last token could not tell the order of those before it
        model = make(replace(style, num_layers=1)).double()
        swapped = TOKENS[:, [1, 0, *range(2, 12)]]
        assert not torch.allclose(model(TOKENS)[:, -1], model(swapped)[:, -1])

    @pytest.mark.parametrize("dropout", [0.0, 0.3])
    @pytest.mark.parametrize("plan", [{}, {"blocks_per_segment": 2}, {"keep_matmuls": True}], ids=str)
    def test_checkpointing_changes_no_gradient(self, style, dropout, plan):
        gradients = []
        for options in ({}, {"checkpointing": True, **plan}):
            model = make(style, dropout=dropout, **options)
            torch.manual_seed(1)
            model(TOKENS).square().mean().backward()
            gradients.append([p.grad for p in model.parameters()])
        for first, second in zip(*gradients, strict=True):
            torch.testing.assert_close(first, second)

    def test_dropout_acts_in_training_only(self, style):
        model = make(style, dropout=0.3)
        assert not torch.equal(model(TOKENS), model(TOKENS))
        model.eval()
        assert torch.equal(model(TOKENS), model(TOKENS))
        torch.testing.assert_close(model(TOKENS), make(style)(TOKENS))

    def test_it_learns(self, style):
        model = make(style)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(20):
            loss = F.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]

    def test_tied_embeddings_are_one_tensor(self, style):
        for tied in (False, True):
            model = make(replace(style, tied_embeddings=tied))
            assert (model.head.weight is model.token_embedding.weight) == tied

    def test_bad_tokens(self, style):
        with pytest.raises(ValueError, match=r"tokens must have shape \(batch, sequence\), got \(12,\)"):
            make(style)(TOKENS[0])


def test_grouped_queries_equal_all_heads_with_repeated_matrices():
    grouped = make(LLAMA).double()
    every = make(replace(LLAMA, num_kv_heads=4)).double()
    state = grouped.state_dict()
    for name in list(state):
        if ".key." in name or ".value." in name:
            heads = state[name].view(2, 8, 32)
            state[name] = heads.repeat_interleave(2, dim=0).reshape(32, 32)
    every.load_state_dict(state)
    for attention in ("fused", "materialised"):
        for model in (grouped, every):
            model.attention = attention
        torch.testing.assert_close(grouped(TOKENS), every(TOKENS))


def test_rotation_keeps_lengths_and_depends_on_distance_only():
    table = rotary_table(16, 8, torch.zeros((), dtype=torch.float64))
    q, k = torch.randn(2, 8, dtype=torch.float64)
    turned_q, turned_k = (rotate(x.expand(16, 8), table) for x in (q, k))
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm().expand(16))
    scores = turned_q @ turned_k.T
    for distance in (-3, 0, 5):
        diagonal = scores.diagonal(distance)
        # the angles are computed in fp32
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(turned_q[0], q)
    for pair, frequency in enumerate((1, 0.1, 0.01, 0.001)):
        torch.testing.assert_close(
            table[:, 5, pair], torch.tensor([math.cos(5 * frequency), math.sin(5 * frequency)]).double()
        )


def test_rms_norm_is_torchs():
    norm = RMSNorm(8)
    nn.init.normal_(norm.weight)
    x = torch.randn(5, 8)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (8,), norm.weight, eps=1e-5))


def test_causal_mask():
    assert causal_mask(3, torch.device("cpu")).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "flash"}, "attention must be fused or materialised, got 'flash'"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        (
            {"checkpointing": True, "blocks_per_segment": 0},
            r"blocks_per_segment must be .* 1 to num_layers \(2\), got 0",
        ),
        (
            {"checkpointing": True, "blocks_per_segment": 3},
            r"blocks_per_segment must be .* 1 to num_layers \(2\), got 3",
        ),
        ({"blocks_per_segment": 2}, "blocks_per_segment and keep_matmuls need checkpointing=True"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Transformer(GPT, **options)


def test_more_tokens_than_positions():
    with pytest.raises(ValueError, match=r"sequence must be at most max_positions \(16\), got 17"):
        make(GPT)(torch.zeros(1, 17, dtype=torch.long))
    assert make(LLAMA)(torch.zeros(1, 17, dtype=torch.long)).shape == (1, 17, 64)
