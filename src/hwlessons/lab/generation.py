"""Greedy generation with and without a KV cache, on the small transformer's own layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hwlessons.counts import check_count
from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.kv_cache import check_context
from hwlessons.lab.transformer import Block, SelfAttention, Transformer, rotary_table, rotate


class KVCache:
    """Keys and values of every layer, allocated once for `capacity` tokens; only num_kv_heads heads are kept.

    Args:
        shape: the model.
        batch: sequences.
        capacity: tokens that fit into it.
        dtype, device: of the numbers.

    Attributes:
        keys, values: one tensor each of (num_layers, batch, num_kv_heads, capacity, head_dim).
        length: tokens that are in it.

    Raises:
        ValueError: for a batch or capacity below 1, or a capacity beyond learned positions.
    """

    def __init__(
        self,
        shape: TransformerShape,
        batch: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value in (("batch", batch), ("capacity", capacity)):
            check_count(name, value)
        check_context(shape, capacity)
        sizes = (shape.num_layers, batch, shape.num_kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(sizes, dtype=dtype, device=device)
        self.values = torch.zeros(sizes, dtype=dtype, device=device)
        self.length = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of both storages, used or not."""
        return self.keys.untyped_storage().nbytes() + self.values.untyped_storage().nbytes()

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values, (batch, num_kv_heads, new tokens, head_dim); returns all as views."""
        end = self.length + keys.shape[2]
        if end > self.keys.shape[3]:
            raise ValueError(f"the cache has room for {self.keys.shape[3]} tokens, got {end}")
        if keys.shape[0] != self.keys.shape[1]:
            raise ValueError(f"the cache is for a batch of {self.keys.shape[1]}, got {keys.shape[0]}")
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


@torch.no_grad()
def next_logits(model: Transformer, tokens: Tensor, cache: KVCache) -> Tensor:
    """Logits (batch, new tokens, vocabulary) of tokens that follow those in the cache; the cache then holds them, too.

    It is the model's forward pass for positions `cache.length` and on: only new tokens are embedded, projected and fed
    forward, and their queries look at cached keys and values.
    """
    start, end = cache.length, cache.length + tokens.shape[1]
    x = model.token_embedding(tokens)
    if model.position_embedding is not None:
        check_context(model.shape, end)
        x = x + model.position_embedding(torch.arange(start, end, device=tokens.device))
    rotary = rotary_table(end, model.shape.head_dim, x)[:, start:] if model.shape.positions == "rotary" else None
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        x = x + _attend(block.attention, block.attention_norm(x), rotary, cache, layer)
        x = x + block.feed_forward(block.feed_forward_norm(x))
    cache.length = end
    return model.head(model.final_norm(x))


def _attend(attention: SelfAttention, x: Tensor, rotary: Tensor | None, cache: KVCache, layer: int) -> Tensor:
    batch, num_new, width = x.shape
    q, k, v = (
        projection(x).view(batch, num_new, -1, attention.shape.head_dim).transpose(1, 2)
        for projection in (attention.query, attention.key, attention.value)
    )
    if rotary is not None:
        q, k = rotate(q, rotary), rotate(k, rotary)
    k, v = cache.append(layer, k, v)
    # the query of new token i sees everything up to position length + i
    visible = torch.ones(num_new, k.shape[2], dtype=torch.bool, device=x.device).tril(cache.length)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=q.shape[1] > k.shape[1])
    return attention.output(y.transpose(1, 2).reshape(batch, num_new, width))


@torch.no_grad()
def generate(model: Transformer, prompt: Tensor, num_new_tokens: int, *, cache: bool = True) -> Tensor:
    """The prompt and the most likely continuation, (batch, prompt + num_new_tokens) token ids.

    Args:
        model: is put into evaluation mode for the call.
        prompt: token ids of (batch, prompt), at least one of each.
        num_new_tokens: tokens to add.
        cache: with a cache, each step computes one token; without, the whole text again.

    Raises:
        ValueError: for an empty prompt, no new tokens, or more tokens than learned positions.
    """
    if prompt.dim() != 2 or not prompt.numel():
        raise ValueError(f"prompt must have shape (batch, tokens) with at least one of each, got {tuple(prompt.shape)}")
    check_count("num_new_tokens", num_new_tokens)
    check_context(model.shape, prompt.shape[1] + num_new_tokens)
    was_training = model.training
    model.eval()
    weight = model.token_embedding.weight
    tokens, new = prompt, prompt
    # the last token that is generated need not be in the cache
    capacity = prompt.shape[1] + num_new_tokens - 1
    kept = KVCache(model.shape, len(prompt), capacity, dtype=weight.dtype, device=weight.device) if cache else None
    for _ in range(num_new_tokens):
        logits = model(tokens) if kept is None else next_logits(model, new, kept)
        new = logits[:, -1:].argmax(-1)
        tokens = torch.cat((tokens, new), 1)
    model.train(was_training)
    return tokens
