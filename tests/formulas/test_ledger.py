"""The ledger of saved activations beside formulas written down by hand and torch's own meta kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import pytest
import torch

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.ledger import layer_bytes, saved_activation_bytes, saved_rows, symbol_sizes
from hwlessons.formulas.step_recipe import StepRecipe

B, S, H, A, V, L, F = 3, 20, 48, 4, 301, 3, 192
GPT = TransformerShape.gpt2_like(num_layers=L, width=H, num_heads=A, vocab_size=V, max_positions=64)
LLAMA = TransformerShape.llama_like(num_layers=L, width=H, num_heads=A, vocab_size=V, ffn_width=F)
GROUPED = replace(LLAMA, num_kv_heads=2)
RECIPE = StepRecipe(B, S)
BSH, BS = B * S * H, B * S
LOSS = 4 * BS * V + 4  # log-probabilities and the total weight of the mean


@pytest.mark.parametrize(("attention", "scores"), [("fused", 4 * B * A * S), ("materialised", 4 * B * A * S * S)])
def test_gpt2_like(attention, scores):
    layers = L * (64 * BSH + 16 * BS + scores)
    tail = 2 * 4 * BSH + 8 * BS + LOSS
    once = 8 * S + (S * S if attention == "materialised" else 0)  # position indices, causal mask
    assert saved_activation_bytes(GPT, replace(RECIPE, attention=attention)) == layers + tail + once


@pytest.mark.parametrize("attention", ["fused", "materialised"])
def test_gpt2_like_with_checkpointing(attention):
    tail = 2 * 4 * BSH + 8 * BS + LOSS
    once = 8 * S + (S * S if attention == "materialised" else 0)
    recipe = replace(RECIPE, attention=attention, checkpointing=True)
    assert saved_activation_bytes(GPT, recipe) == L * 4 * BSH + tail + once


@pytest.mark.parametrize(("length", "num_segments"), [(1, 3), (2, 2), (3, 1)])
def test_segments_keep_only_their_boundaries(length, num_segments):
    whole = saved_activation_bytes(GPT, replace(RECIPE, checkpointing=True))
    recipe = replace(RECIPE, checkpointing=True, blocks_per_segment=length)
    assert whole - saved_activation_bytes(GPT, recipe) == (L - num_segments) * 4 * BSH


@pytest.mark.parametrize(
    ("attention", "results"),
    [
        ("fused", 4 * BSH + 4 * B * A * S),  # output, a logarithm for each query
        ("materialised", 4 * BSH + 4 * B * A * S * S),  # output, scores before they are scaled
    ],
)
def test_selective_checkpointing_keeps_what_matmuls_return(attention, results):
    """Queries, keys, values, both projections: bsh each; up: 4bsh; none of their inputs, norms, GELU or sums."""
    recipe = replace(RECIPE, attention=attention, checkpointing=True, dropout=0.1)
    found = saved_activation_bytes(GPT, replace(recipe, keep_matmuls=True)) - saved_activation_bytes(GPT, recipe)
    assert found == L * (4 * (3 + 1 + 4 + 1) * BSH + results)


def test_gpt2_like_with_dropout():
    # a mask in fp32 after the embedding and after both halves of a block; the sums keep nothing
    without = saved_activation_bytes(GPT, RECIPE)
    assert saved_activation_bytes(GPT, replace(RECIPE, dropout=0.1)) == without + (2 * L + 1) * 4 * BSH
    # on CUDA a byte for each value
    without = saved_activation_bytes(GPT, RECIPE, kernels="cuda")
    recipe = replace(RECIPE, dropout=0.1)
    assert saved_activation_bytes(GPT, recipe, kernels="cuda") == without + (2 * L + 1) * BSH


@pytest.mark.parametrize(("attention", "scores"), [("fused", 4 * B * A * S), ("materialised", 4 * B * A * S * S)])
def test_llama_like(attention, scores):
    norms = 2 * (2 * 4 * BSH + 4 * BS)  # input, x / rms; 1 / rms
    attention_part = 4 * BSH + 4 * 4 * BSH + scores  # its input; q, k, v and the output
    feed_forward = 4 * BSH + 4 * 4 * BS * F  # its input; gate, silu, up, product
    tail = 2 * 4 * BSH + 4 * BS + 4 * BSH + LOSS
    once = 2 * S * (H // A) * 4 + (S * S if attention == "materialised" else 0)  # rotary table, causal mask
    expected = L * (norms + attention_part + feed_forward) + tail + once
    for one in (LLAMA, GROUPED):  # heads are repeated before attention, so grouped queries keep as much
        assert saved_activation_bytes(one, replace(RECIPE, attention=attention)) == expected


def test_everything_in_16_bit_is_half_but_for_the_logarithms():
    full, half = (saved_activation_bytes(GPT, replace(RECIPE, precision=p)) for p in ("fp32", "bf16"))
    fp32_in_both = L * 4 * B * A * S + 8 * S
    assert half - fp32_in_both == (full - fp32_in_both) // 2


def test_autocast_narrows_what_matmuls_read():
    kept = {(row.layer, row.tensor): row for row in saved_rows(GPT, replace(RECIPE, precision="autocast_bf16"))}
    assert kept["block 0", "gelu"].itemsize == 2
    assert kept["block 0", "attention residual"].itemsize == 4
    assert kept["loss", "log-probabilities"].itemsize == 4
    assert ("block 0", "blocks.0.attention.query.weight") not in kept  # cached casts of weights are no activations


@pytest.mark.parametrize("kernels", ["cpu", "cuda"])
@pytest.mark.parametrize("one", [GPT, LLAMA, GROUPED], ids=["GPT-2-like", "Llama-like", "grouped"])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "autocast_bf16", "bf16"])
def test_rows(one, precision, checkpointing, kernels):
    recipe = replace(RECIPE, precision=precision, checkpointing=checkpointing, dropout=0.1, attention="materialised")
    rows = saved_rows(one, recipe, kernels=kernels)
    sizes = symbol_sizes(one, recipe)
    for row in rows:
        assert row.num_bytes == row.itemsize * prod(sizes[symbol] for symbol in row.dims.split())
        assert row.saved_by and row.freed_at in row.saved_by and row.tensor
    layers = layer_bytes(rows)
    assert list(layers) == ["embedding", *(f"block {i}" for i in range(L)), "head", "loss"]
    assert sum(layers.values()) == saved_activation_bytes(one, recipe, kernels=kernels)
    if not checkpointing:
        # the causal mask and the rotary table are kept once, by the first block
        shared = sum(row.num_bytes for row in rows if row.tensor in ("causal mask", "rotary table"))
        assert layers["block 0"] - shared == layers["block 1"] == layers["block 2"]
    once = Counter((row.layer, row.tensor) for row in rows)
    assert once["loss", "log-probabilities"] == 1


def test_activations_are_flat_per_sample():
    one, two, four = (saved_activation_bytes(GPT, StepRecipe(b, S)) for b in (1, 2, 4))
    assert four - two == 2 * (two - one)


def test_accumulation_keeps_no_more():
    assert saved_activation_bytes(GPT, replace(RECIPE, num_microbatches=8)) == saved_activation_bytes(GPT, RECIPE)


def meta(*sizes, dtype=torch.bfloat16):
    return torch.empty(*sizes, dtype=dtype, device="meta")


def row_bytes(one, recipe, *names):
    rows = saved_rows(one, recipe, kernels="cuda")
    return [sum(r.num_bytes for r in rows if r.layer == "block 0" and r.tensor == name) for name in names]


class TestMetaKernelsOfCuda:
    """What CUDA's kernels return for backward, asked of torch's meta kernels and its derivatives.yaml."""

    Q = (B, A, S, H // A)

    def test_flash_attention(self):
        q = meta(*self.Q)
        results = torch.ops.aten._scaled_dot_product_flash_attention(q, q, q, 0.0, True)
        output, logsumexp, random_state, unused = results[0], results[1], results[6], results[7]
        for precision in ("bf16", "autocast_bf16"):
            recipe = replace(RECIPE, precision=precision)
            names = ("attention output", "logsumexp", "random state", "random offset")
            expected = [t.nbytes for t in (output, logsumexp, random_state, unused)]
            assert row_bytes(GPT, recipe, *names) == expected

    @pytest.mark.parametrize("sequence", [20, 32, 33])
    def test_memory_efficient_attention(self, sequence):
        q = meta(B, A, sequence, H // A, dtype=torch.float32)
        output, logsumexp, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, True, 0.0, True)
        recipe = StepRecipe(B, sequence)
        # outside of graph capture the seed and the offset are on the host
        names = ("attention output", "logsumexp", "random state", "random offset")
        assert row_bytes(GPT, recipe, *names) == [output.nbytes, logsumexp.nbytes, 0, 0]

    def test_layer_norm_statistics(self):
        x, weight = meta(B, S, H), meta(H)
        _, mean, rstd = torch.ops.aten.native_layer_norm(x, (H,), weight, weight, 1e-5)
        names = ("attention norm mean", "attention norm rstd")
        assert row_bytes(GPT, replace(RECIPE, precision="bf16"), *names) == [mean.nbytes, rstd.nbytes]
        assert mean.dtype == torch.float32

    def test_dropout_mask(self):
        _, mask = torch.ops.aten.native_dropout(meta(B, S, H), 0.1, True)
        recipe = replace(RECIPE, precision="bf16", dropout=0.1)
        assert row_bytes(GPT, recipe, "attention dropout mask") == [mask.nbytes] == [BSH]

    def test_autocast_widens_softmax(self):
        recipe = replace(RECIPE, precision="autocast_bf16", attention="materialised")
        # probabilities in fp32 for softmax, and in bfloat16 for the product with the values
        assert row_bytes(GPT, recipe, "probabilities") == [(4 + 2) * B * A * S * S]
        cpu = [r for r in saved_rows(GPT, recipe) if r.layer == "block 0" and r.tensor == "probabilities"]
        assert [r.itemsize for r in cpu] == [2]


def test_bad_input():
    with pytest.raises(ValueError, match="kernels must be cpu or cuda, got 'mps'"):
        saved_rows(GPT, RECIPE, kernels="mps")
    with pytest.raises(ValueError, match=r"sequence must be at most max_positions \(64\), got 65"):
        saved_rows(GPT, StepRecipe(1, 65))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("microbatch", 0, "an integer of at least 1"),
        ("sequence", 2.0, "an integer of at least 1"),
        ("num_microbatches", True, "an integer of at least 1"),
        ("attention", "flash", "one of fused, materialised"),
        ("precision", "fp16", "one of fp32, autocast_bf16, bf16"),
        ("optimizer", "lion", "one of sgd, momentum, adamw"),
        ("implementation", "for", "one of for_loop, foreach, fused"),
        ("dropout", 1.0, "at least 0 and below 1"),
    ],
)
def test_bad_recipes(name, value, allowed):
    with pytest.raises(ValueError, match=f"^{name} must be {allowed}, got {value!r}$"):
        replace(RECIPE, **{name: value})
