"""Shapes of decoder-only transformers: what a parameter or activation count needs to know, and the published ones.

The catalogue is read from `data/shapes.toml`, where every entry names its source and the day it was read.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from hwlessons.counts import check_count

Norm = Literal["layernorm", "rmsnorm"]
Mlp = Literal["gelu", "swiglu"]
Positions = Literal["learned", "rotary"]

_ALLOWED = {"norm": ("layernorm", "rmsnorm"), "mlp": ("gelu", "swiglu"), "positions": ("learned", "rotary")}
_COUNTS = ("num_layers", "width", "num_heads", "num_kv_heads", "ffn_width", "vocab_size")


@dataclass(frozen=True)
class TransformerShape:
    """The sizes and block style of a decoder-only transformer.

    Attributes:
        num_layers: number of blocks.
        width: features of the residual stream (hidden size, d_model).
        num_heads: query heads; must divide `width`.
        num_kv_heads: key and value heads; must divide `num_heads` (fewer than `num_heads` is grouped-query attention).
        ffn_width: inner features of the feed-forward part.
        vocab_size: rows of the token embedding.
        max_positions: rows of the learned position embedding; 0 with rotary positions.
        norm: "layernorm" (scale and shift) or "rmsnorm" (scale only).
        mlp: "gelu" (two matrices) or "swiglu" (three matrices).
        positions: "learned" (an embedding) or "rotary" (no parameters).
        has_biases: whether linear layers have biases; the output head never has one.
        tied_embeddings: whether the output head shares the token embedding's matrix.
        name: a label for tables; no meaning.

    Raises:
        ValueError: if a size is not a positive integer, heads do not divide, or a style is unknown.
    """

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    ffn_width: int
    vocab_size: int
    max_positions: int
    norm: Norm
    mlp: Mlp
    positions: Positions
    has_biases: bool
    tied_embeddings: bool
    name: str = "custom"

    def __post_init__(self) -> None:
        for field in _COUNTS:
            value = getattr(self, field)
            check_count(field, value)
        for field, allowed in _ALLOWED.items():
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(allowed)}, got {getattr(self, field)!r}")
        if self.width % self.num_heads:
            raise ValueError(f"num_heads must divide width ({self.width}), got {self.num_heads}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads must divide num_heads ({self.num_heads}), got {self.num_kv_heads}")
        if self.positions == "rotary" and (self.head_dim % 2 or self.max_positions):
            raise ValueError(
                "rotary positions need an even head_dim and max_positions=0, "
                f"got head_dim {self.head_dim} and max_positions {self.max_positions}"
            )
        if self.positions == "learned" and self.max_positions < 1:
            raise ValueError(f"learned positions need max_positions of at least 1, got {self.max_positions!r}")

    @property
    def head_dim(self) -> int:
        """Features of one head: width / num_heads."""
        return self.width // self.num_heads

    @property
    def kv_width(self) -> int:
        """Features of all keys (or all values) of one token: num_kv_heads * head_dim."""
        return self.num_kv_heads * self.head_dim

    @classmethod
    def gpt2_like(
        cls,
        *,
        num_layers: int,
        width: int,
        num_heads: int,
        vocab_size: int,
        max_positions: int,
        ffn_width: int | None = None,
        tied_embeddings: bool = True,
        name: str = "gpt2-like",
    ) -> TransformerShape:
        """LayerNorm, GELU, learned positions, biases, all heads with their own keys and values; ffn_width 4 * width."""
        return cls(
            num_layers=num_layers,
            width=width,
            num_heads=num_heads,
            num_kv_heads=num_heads,
            ffn_width=4 * width if ffn_width is None else ffn_width,
            vocab_size=vocab_size,
            max_positions=max_positions,
            norm="layernorm",
            mlp="gelu",
            positions="learned",
            has_biases=True,
            tied_embeddings=tied_embeddings,
            name=name,
        )

    @classmethod
    def llama_like(
        cls,
        *,
        num_layers: int,
        width: int,
        num_heads: int,
        vocab_size: int,
        ffn_width: int,
        num_kv_heads: int | None = None,
        tied_embeddings: bool = False,
        name: str = "llama-like",
    ) -> TransformerShape:
        """RMSNorm, SwiGLU, rotary positions, no biases; `num_kv_heads` below `num_heads` is grouped-query attention."""
        return cls(
            num_layers=num_layers,
            width=width,
            num_heads=num_heads,
            num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
            ffn_width=ffn_width,
            vocab_size=vocab_size,
            max_positions=0,
            norm="rmsnorm",
            mlp="swiglu",
            positions="rotary",
            has_biases=False,
            tied_embeddings=tied_embeddings,
            name=name,
        )


@cache
def load_shapes() -> dict[str, TransformerShape]:
    """The published shapes by name, e.g. "gpt2-small" or "llama-7b"."""
    entries = tomllib.loads(files("hwlessons.facts").joinpath("data/shapes.toml").read_text("utf8"))
    shapes = {}
    for name, entry in entries.items():
        sizes = {key: value for key, value in entry.items() if key not in ("source", "read_on")}
        shapes[name] = TransformerShape(name=name, **sizes)
    return shapes


def shape(name: str) -> TransformerShape:
    """One published shape.

    Raises:
        ValueError: if the catalogue has no such name; the message lists the names it has.
    """
    shapes = load_shapes()
    if name not in shapes:
        raise ValueError(f"unknown model shape {name!r}; the catalogue has {', '.join(sorted(shapes))}")
    return shapes[name]
