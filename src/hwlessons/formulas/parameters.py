"""How many parameters a transformer has, by part, and which tensors they are.

The counts are closed forms of the shape; the list of tensors is the order in which
`hwlessons.lab.transformer.Transformer` registers them, and each is the other's check.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hwlessons.facts.shapes import TransformerShape


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a transformer by part (numbers of values, not bytes).

    Attributes:
        embedding: the token embedding, vocab_size * width.
        position: the learned position embedding; 0 with rotary positions.
        attention: query, key, value and output projections of all blocks.
        feed_forward: the two or three feed-forward matrices of all blocks.
        block_norms: the two norms of all blocks.
        final_norm: the norm before the head.
        head: the output head's own matrix; 0 where it shares the token embedding's.
    """

    embedding: int
    position: int
    attention: int
    feed_forward: int
    block_norms: int
    final_norm: int
    head: int

    @property
    def blocks(self) -> int:
        """All blocks: attention, feed-forward and their norms."""
        return self.attention + self.feed_forward + self.block_norms

    @property
    def total(self) -> int:
        """Every parameter once; a shared matrix counts once."""
        return self.embedding + self.position + self.blocks + self.final_norm + self.head

    @property
    def non_embedding(self) -> int:
        """Blocks and final norm: without token embedding, position embedding and head (Pythia's table 1)."""
        return self.blocks + self.final_norm


@dataclass(frozen=True)
class ParameterTensor:
    """One parameter tensor: its name in `Transformer.named_parameters()` and its sizes."""

    name: str
    sizes: tuple[int, ...]

    @property
    def num_values(self) -> int:
        """Product of the sizes."""
        return prod(self.sizes)


def parameter_count(shape: TransformerShape) -> ParameterCount:
    """Parameters of `shape` by part.

    A linear layer from m to n features has m*n weights and, with biases, n more; LayerNorm has a scale and a shift,
    RMSNorm only a scale. For GPT-2's block (h = width, ffn_width = 4h) this is the familiar 12h^2 + 13h per block.
    """
    h, kv, f = shape.width, shape.kv_width, shape.ffn_width
    num_matrices_up = 2 if shape.mlp == "swiglu" else 1
    bias = 1 if shape.has_biases else 0
    norm = h * (2 if shape.norm == "layernorm" else 1)
    attention = 2 * h * h + 2 * h * kv + bias * (2 * h + 2 * kv)
    feed_forward = (num_matrices_up + 1) * h * f + bias * (num_matrices_up * f + h)
    return ParameterCount(
        embedding=shape.vocab_size * h,
        position=shape.max_positions * h,
        attention=shape.num_layers * attention,
        feed_forward=shape.num_layers * feed_forward,
        block_norms=shape.num_layers * 2 * norm,
        final_norm=norm,
        head=0 if shape.tied_embeddings else shape.vocab_size * h,
    )


def parameter_tensors(shape: TransformerShape) -> list[ParameterTensor]:
    """Every parameter tensor once, in the order of `hwlessons.lab.transformer.Transformer.named_parameters()`."""
    h, kv, f, v = shape.width, shape.kv_width, shape.ffn_width, shape.vocab_size
    tensors = [ParameterTensor("token_embedding.weight", (v, h))]
    if shape.positions == "learned":
        tensors.append(ParameterTensor("position_embedding.weight", (shape.max_positions, h)))
    up = [("gate", f, h), ("up", f, h)] if shape.mlp == "swiglu" else [("up", f, h)]
    for layer in range(shape.num_layers):
        block = f"blocks.{layer}"
        tensors += _norm(f"{block}.attention_norm", shape)
        for name, rows, columns in (("query", h, h), ("key", kv, h), ("value", kv, h), ("output", h, h)):
            tensors += _linear(f"{block}.attention.{name}", rows, columns, shape)
        tensors += _norm(f"{block}.feed_forward_norm", shape)
        for name, rows, columns in (*up, ("down", h, f)):
            tensors += _linear(f"{block}.feed_forward.{name}", rows, columns, shape)
    tensors += _norm("final_norm", shape)
    if not shape.tied_embeddings:
        tensors.append(ParameterTensor("head.weight", (v, h)))
    return tensors


def num_parameter_tensors(shape: TransformerShape) -> int:
    """Number of parameter tensors; an optimizer such as AdamW keeps one step counter for each."""
    return len(parameter_tensors(shape))


def largest_parameter_tensor(shape: TransformerShape) -> ParameterTensor:
    """The tensor with the most values (the first of equals): for-loop AdamW's temporaries are as large as this."""
    return max(parameter_tensors(shape), key=lambda tensor: tensor.num_values)


def _linear(name: str, rows: int, columns: int, shape: TransformerShape) -> list[ParameterTensor]:
    weight = ParameterTensor(f"{name}.weight", (rows, columns))
    return [weight, ParameterTensor(f"{name}.bias", (rows,))] if shape.has_biases else [weight]


def _norm(name: str, shape: TransformerShape) -> list[ParameterTensor]:
    weight = ParameterTensor(f"{name}.weight", (shape.width,))
    return [weight, ParameterTensor(f"{name}.bias", (shape.width,))] if shape.norm == "layernorm" else [weight]
