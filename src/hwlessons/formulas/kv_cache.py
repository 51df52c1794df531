"""The KV cache: keys and values of earlier tokens that generation keeps, in bytes."""

from __future__ import annotations

from hwlessons.counts import check_count
from hwlessons.facts.shapes import TransformerShape


def kv_cache_bytes_per_token(shape: TransformerShape, itemsize: int) -> int:
    """Bytes that one token of one sequence adds: 2 * num_layers * num_kv_heads * head_dim * itemsize.

    The 2 is for keys *and* values; the heads are those of keys and values, which grouped-query attention has fewer of.

    Raises:
        ValueError: for an itemsize below 1.
    """
    check_count("itemsize", itemsize)
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * itemsize


def kv_cache_bytes(shape: TransformerShape, *, batch: int, context: int, itemsize: int) -> int:
    """Bytes of the cache of `batch` sequences with `context` tokens each, prompt and generated ones together.

    Args:
        shape: the model.
        batch: sequences that are generated at the same time.
        context: tokens of a sequence.
        itemsize: bytes of one key or value number, 2 for bf16.

    Raises:
        ValueError: for a number below 1, or a context beyond learned positions.
    """
    check_count("batch", batch)
    check_count("context", context)
    check_context(shape, context)
    return batch * context * kv_cache_bytes_per_token(shape, itemsize)


def check_context(shape: TransformerShape, context: int) -> None:
    """Raise ValueError if learned positions are fewer than `context` tokens."""
    if shape.positions == "learned" and context > shape.max_positions:
        raise ValueError(f"context must be at most max_positions ({shape.max_positions}), got {context}")
