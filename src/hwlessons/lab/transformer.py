"""The small transformer of all lessons: one readable decoder in GPT-2's and in Llama's block style.

Everything that decides which tensors autograd keeps is written out here in ordinary torch calls, so that the rows of
`hwlessons.formulas.ledger` can be read beside it. Dropout acts on the residual stream (embedding, attention output,
feed-forward output) and not on attention probabilities: the fused kernel for CPUs has no dropout and would silently
fall back to materialised scores.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import Attention, check_checkpointing, check_segments
from hwlessons.lab.documents import document_mask, document_positions

aten = torch.ops.aten
MATMULS = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
]
"""Operators whose results selective checkpointing keeps: matmuls, and fused attention, which is two of them."""


class RMSNorm(nn.Module):
    """Scale to unit root mean square, then by a learned weight (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        inverse_rms = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * inverse_rms * self.weight


class SelfAttention(nn.Module):
    """Causal self-attention; `attention` picks the fused kernel or scores that are written to memory.

    Materialised scores need a mask, True where a query must not look. The fused kernel is causal without one, or adds
    one of 0 and minus infinity.
    """

    def __init__(self, shape: TransformerShape, attention: Attention) -> None:
        super().__init__()
        self.shape, self.attention = shape, attention
        self.query = nn.Linear(shape.width, shape.width, bias=shape.has_biases)
        self.key = nn.Linear(shape.width, shape.kv_width, bias=shape.has_biases)
        self.value = nn.Linear(shape.width, shape.kv_width, bias=shape.has_biases)
        self.output = nn.Linear(shape.width, shape.width, bias=shape.has_biases)

    def forward(self, x: Tensor, rotary: Tensor | None, mask: Tensor | None) -> Tensor:
        batch, sequence, _ = x.shape
        head_dim = self.shape.head_dim
        q, k, v = (
            projection(x).view(batch, sequence, -1, head_dim).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        num_queries_per_kv = self.shape.num_heads // self.shape.num_kv_heads
        if num_queries_per_kv > 1:
            k = k.repeat_interleave(num_queries_per_kv, dim=1)
            v = v.repeat_interleave(num_queries_per_kv, dim=1)
        if mask is None or mask.is_floating_point():
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        else:
            scores = q @ k.transpose(-2, -1) * head_dim**-0.5
            y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        return self.output(y.transpose(1, 2).reshape(batch, sequence, -1))


class FeedForward(nn.Module):
    """GELU between two matrices, or SwiGLU with three (Shazeer 2020)."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.ffn_width, bias=shape.has_biases) if shape.mlp == "swiglu" else None
        self.up = nn.Linear(shape.width, shape.ffn_width, bias=shape.has_biases)
        self.down = nn.Linear(shape.ffn_width, shape.width, bias=shape.has_biases)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(F.gelu(self.up(x)))
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, shape: TransformerShape, attention: Attention, dropout: float) -> None:
        super().__init__()
        self.attention_norm = make_norm(shape)
        self.attention = SelfAttention(shape, attention)
        self.feed_forward_norm = make_norm(shape)
        self.feed_forward = FeedForward(shape)
        self.dropout = dropout

    def forward(self, x: Tensor, rotary: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.drop(self.attention(self.attention_norm(x), rotary, mask))
        return x + self.drop(self.feed_forward(self.feed_forward_norm(x)))

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Transformer(nn.Module):
    """A decoder-only language model.

    Args:
        shape: sizes and block style.
        attention: "fused" (`scaled_dot_product_attention`) or "materialised" (scores as a tensor of batch, heads,
            sequence, sequence).
        dropout: probability for the residual stream, 0 <= dropout < 1.
        checkpointing: recompute the blocks in backward instead of keeping their activations.
        blocks_per_segment: consecutive blocks that are recomputed together; the last segment may have fewer.
        keep_matmuls: selective checkpointing: keep the results of `MATMULS` and recompute the rest.

    Raises:
        ValueError: for an unknown attention, a dropout outside [0, 1), a segment without blocks or longer than the
            model, or options of checkpointing without it.
    """

    def __init__(
        self,
        shape: TransformerShape,
        *,
        attention: Attention = "fused",
        dropout: float = 0.0,
        checkpointing: bool = False,
        blocks_per_segment: int = 1,
        keep_matmuls: bool = False,
    ) -> None:
        if attention not in ("fused", "materialised"):
            raise ValueError(f"attention must be fused or materialised, got {attention!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
        check_checkpointing(checkpointing, blocks_per_segment, keep_matmuls)
        check_segments(shape.num_layers, blocks_per_segment)
        super().__init__()
        self.shape, self.attention, self.dropout = shape, attention, dropout
        self.checkpointing, self.blocks_per_segment = checkpointing, blocks_per_segment
        self.keep_matmuls = keep_matmuls
        self.token_embedding = nn.Embedding(shape.vocab_size, shape.width)
        self.position_embedding = (
            nn.Embedding(shape.max_positions, shape.width) if shape.positions == "learned" else None
        )
        self.blocks = nn.ModuleList(Block(shape, attention, dropout) for _ in range(shape.num_layers))
        self.final_norm = make_norm(shape)
        self.head = nn.Linear(shape.width, shape.vocab_size, bias=False)
        self.apply(initialise)
        if shape.tied_embeddings:
            self.head.weight = self.token_embedding.weight

    def forward(self, tokens: Tensor, document_ids: Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
        """Logits of shape (batch, sequence, vocab_size) for token ids of shape (batch, sequence).

        Args:
            tokens: token ids.
            document_ids: for packed sequences, which document a token belongs to, shape of `tokens`: no token sees
                another document, and positions restart with each.
            positions: the position of each token, shape of `tokens`; by default counted from the start of the
                sequence, or of the document where `document_ids` are given.

        Raises:
            ValueError: if a tensor has another shape, or `tokens` is longer than the position embedding.
        """
        if tokens.dim() != 2:
            raise ValueError(f"tokens must have shape (batch, sequence), got {tuple(tokens.shape)}")
        for name, given in (("document_ids", document_ids), ("positions", positions)):
            if given is not None and given.shape != tokens.shape:
                raise ValueError(
                    f"{name} must have the shape of tokens {tuple(tokens.shape)}, got {tuple(given.shape)}"
                )
        if positions is None and document_ids is not None:
            positions = document_positions(document_ids)
        sequence = tokens.shape[1]
        x = self.token_embedding(tokens)
        if self.position_embedding is not None:
            if sequence > self.shape.max_positions:
                raise ValueError(f"sequence must be at most max_positions ({self.shape.max_positions}), got {sequence}")
            x = x + self.position_embedding(
                torch.arange(sequence, device=tokens.device) if positions is None else positions
            )
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        rotary = None
        if self.shape.positions == "rotary":
            rotary = rotary_table(sequence if positions is None else positions, self.shape.head_dim, x)
        mask = causal_mask(sequence, x.device) if self.attention == "materialised" and document_ids is None else None
        if document_ids is not None:
            mask = document_mask(document_ids).unsqueeze(1)  # the same for all heads
            if self.attention == "fused":  # added to scores, and one for all blocks: of a bool each makes its own
                mask = torch.zeros_like(mask, dtype=x.dtype).masked_fill(mask, float("-inf"))
        for first in range(0, self.shape.num_layers, self.blocks_per_segment):
            if self.checkpointing and self.training:
                x = self.checkpointed(first, x, rotary, mask)
            else:
                x = self.segment(first, x, rotary, mask)
        return self.head(self.final_norm(x))

    def segment(self, first: int, x: Tensor, rotary: Tensor | None, mask: Tensor | None) -> Tensor:
        for block in self.blocks[first : first + self.blocks_per_segment]:
            x = block(x, rotary, mask)
        return x

    def checkpointed(self, first: int, x: Tensor, rotary: Tensor | None, mask: Tensor | None) -> Tensor:
        run = partial(self.segment, first)
        if self.keep_matmuls:
            keep = partial(create_selective_checkpoint_contexts, MATMULS)
            return checkpoint(run, x, rotary, mask, use_reentrant=False, context_fn=keep)
        return checkpoint(run, x, rotary, mask, use_reentrant=False)


def make_norm(shape: TransformerShape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.norm == "layernorm" else RMSNorm(shape.width)


def initialise(module: nn.Module) -> None:
    """GPT-2's initialisation: normal weights of standard deviation 0.02, zero biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def causal_mask(sequence: int, device: torch.device) -> Tensor:
    """True where a query must not look: strictly above the diagonal, shape (sequence, sequence)."""
    return torch.ones(sequence, sequence, dtype=torch.bool, device=device).triu(1)


def rotary_table(positions: int | Tensor, head_dim: int, like: Tensor) -> Tensor:
    """Cosines and sines of each position's angles, in the dtype of `like` (Su et al. 2021).

    Shape (2, positions, head_dim) for the number of positions, (2, batch, 1, sequence, head_dim) for a tensor of them.
    """
    frequencies = 10_000 ** -(torch.arange(0, head_dim, 2, device=like.device) / head_dim)
    if isinstance(positions, int):
        angles = torch.outer(torch.arange(positions, device=like.device), frequencies).repeat(1, 2)
    else:
        angles = (positions[:, None, :, None] * frequencies).repeat(1, 1, 1, 2)
    return torch.stack((angles.cos(), angles.sin())).to(like.dtype)


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn each pair (i, i + head_dim/2) of the last dimension by its position's angle."""
    first, second = x.chunk(2, -1)
    return x * rotary[0] + torch.cat((-second, first), -1) * rotary[1]
