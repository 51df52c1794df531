"""Adapters start as nothing, learn alone and merge; packed linear layers hold the bytes and values they say."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.adapters import (
    PAIR_TABLE_BYTES,
    TARGETS,
    Adapters,
    adapter_tensors,
    packed_base_bytes,
)
from hwlessons.formulas.block_formats import BLOCK_FORMATS
from hwlessons.lab.adapters import AdaptedLinear, add_adapters
from hwlessons.lab.generation import generate
from hwlessons.lab.quantised_linear import QuantisedLinear, pair_table
from hwlessons.lab.rounding import dequantise, quantise
from hwlessons.lab.transformer import Transformer

GPT = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=2, vocab_size=65, max_positions=16)
LLAMA = TransformerShape.llama_like(num_layers=2, width=32, num_heads=4, num_kv_heads=2, vocab_size=65, ffn_width=64)
SHAPES = pytest.mark.parametrize("one", [GPT, LLAMA], ids=["gpt2", "llama"])
FORMATS = pytest.mark.parametrize("format", ["nf4", "nf4_double"])
TOKENS = torch.randint(65, (3, 12), generator=torch.Generator().manual_seed(0))


def make(one, **options):
    torch.manual_seed(0)
    model = Transformer(one)
    return add_adapters(model, **options) if options else model


def loss_of(model):
    return F.cross_entropy(model(TOKENS).flatten(0, 1), (TOKENS.flatten() + 1) % 65)


@SHAPES
@pytest.mark.parametrize("targets", [("query", "value"), ("down",), TARGETS[:4] + TARGETS[5:]], ids=len)
def test_trained_tensors_are_the_listed_ones(one, targets):
    model = make(one, adapters=Adapters(3, targets))
    found = [(name, tuple(p.shape)) for name, p in model.named_parameters() if p.requires_grad]
    assert found == [(tensor.name, tensor.sizes) for tensor in adapter_tensors(one, Adapters(3, targets))]
    loss_of(model).backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {name for name, _ in found}


@SHAPES
def test_it_starts_as_the_base_and_learns(one):
    base, model = make(one), make(one, adapters=Adapters(8, ("query", "value", "up", "down")))
    assert torch.equal(base(TOKENS), model(TOKENS))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(30):
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    trained = dict(model.named_parameters())
    for name, parameter in base.named_parameters():
        name = name.replace(".weight", ".base.weight").replace(".bias", ".base.bias")
        assert torch.equal(trained.get(name, parameter), parameter)


def test_the_update_can_be_merged():
    linear = nn.Linear(8, 6).double()
    layer = AdaptedLinear(linear, 8, 6, 2, linear.weight, 0.5)
    nn.init.normal_(layer.lora_b)
    merged = linear.weight + 0.5 * layer.lora_b @ layer.lora_a
    x = torch.randn(5, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), F.linear(x, merged, linear.bias))
    assert [p is layer.lora_a or p is layer.lora_b for p in layer.parameters() if p.requires_grad] == [True, True]
    adapted = make(GPT, adapters=Adapters(2), scaling=0.5)
    assert {m.scaling for m in adapted.modules() if isinstance(m, AdaptedLinear)} == {0.5}


@FORMATS
def test_a_packed_layer_computes_in_the_format_of_autocast(format):
    linear = nn.Linear(128, 64)
    packed = QuantisedLinear(linear, format, pair_table())
    x = torch.randn(4, 128, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = packed(x)
    weight, bias = packed.dequantise(torch.bfloat16), linear.bias.bfloat16()
    assert out.dtype == torch.bfloat16 and not any(p.requires_grad for p in packed.parameters())
    torch.testing.assert_close(out, F.linear(x.bfloat16(), weight, bias), rtol=0.02, atol=0.02)
    out.sum().backward()
    assert x.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad, (torch.ones(4, 64, dtype=torch.bfloat16) @ weight).float())


@FORMATS
def test_a_packed_layer_keeps_its_packed_tensors_alone(format):
    """The dequantised weight is gone when forward is done; of all tensors that forward made only the result lives."""
    packed = QuantisedLinear(nn.Linear(256, 64, bias=False), format, pair_table())
    x = torch.randn(4, 256, requires_grad=True)

    def count():
        gc.collect()
        return sum(1 for one in gc.get_objects() if type(one) is torch.Tensor and one.numel() == 256 * 64)

    before = count()
    out = packed(x)
    assert count() == before and out.grad_fn is not None


@FORMATS
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(64, 128), (32, 2), (128, 258)], ids=str)
def test_a_packed_layer_is_the_dequantised_one(format, bias, sizes):
    torch.manual_seed(0)
    linear = nn.Linear(sizes[1], sizes[0], bias=bias)
    weight = dequantise(quantise(linear.weight.detach(), format))
    packed = QuantisedLinear(linear, format, pair_table())
    assert torch.equal(packed.dequantise(), weight)
    assert packed.stored_bytes == BLOCK_FORMATS[format].stored_bytes(linear.weight.numel())
    assert packed.stored_bytes == quantise(linear.weight.detach(), format).stored_bytes
    x = torch.randn(2, 5, sizes[1], requires_grad=True)
    out = packed(x)
    assert torch.equal(out, F.linear(x, weight, linear.bias))
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    expected = torch.autograd.grad(F.linear(x, weight, linear.bias).square().sum(), x)[0]
    torch.testing.assert_close(gradient, expected)


@FORMATS
def test_the_compute_dtype(format):
    packed = QuantisedLinear(nn.Linear(64, 64), format, pair_table())
    x = torch.randn(3, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = packed(x)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert x.grad.dtype == torch.float32


@FORMATS
def test_conversion_leaves_the_codes_alone(format):
    packed = QuantisedLinear(nn.Linear(64, 64, bias=False), format, pair_table())
    before = packed.dequantise()
    assert {tensor.dtype for tensor in packed.buffers()} == {torch.uint8}
    assert torch.equal(packed.bfloat16().dequantise(), before)
    assert packed(torch.randn(2, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


@SHAPES
@FORMATS
def test_the_whole_base_has_the_predicted_bytes(one, format):
    model = make(one, adapters=Adapters(4), base_format=format)
    storages = {b.untyped_storage().data_ptr(): b.untyped_storage().nbytes() for b in model.buffers()}
    assert sum(storages.values()) == packed_base_bytes(one, format)
    layers = [module for module in model.modules() if isinstance(module, QuantisedLinear)]
    assert sum(layer.stored_bytes for layer in layers) + PAIR_TABLE_BYTES == packed_base_bytes(one, format)
    assert not any(isinstance(module, nn.Linear) for block in model.blocks for module in block.modules())


@SHAPES
@FORMATS
def test_adapters_on_a_packed_base_learn_alone(one, format):
    model = make(one, adapters=Adapters(8, ("query", "value", "up", "down")), base_format=format)
    before = {name: tensor.clone() for name, tensor in model.named_buffers()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(30):
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_buffers())
    assert torch.equal(generate(model, TOKENS[:, :4], 8), generate(model, TOKENS[:, :4], 8, cache=False))


def test_bad_input():
    with pytest.raises(ValueError, match="whose gelu block has no gate"):
        make(GPT, adapters=Adapters(4, ("gate",)))
    with pytest.raises(ValueError, match="model must be one without adapters and packed weights"):
        add_adapters(make(GPT, adapters=Adapters(4)), Adapters(4))
    with pytest.raises(ValueError, match="format must be nf4 or nf4_double, got 'int4'"):
        make(GPT, adapters=Adapters(4), base_format="int4")
    with pytest.raises(ValueError, match=r"weight must have a multiple of 64 values \(the block of nf4\), got 30"):
        QuantisedLinear(nn.Linear(6, 5), "nf4", pair_table())
