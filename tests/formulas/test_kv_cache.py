"""Bytes of a KV cache against the published closed form; measured ones are in tests/lab/test_generation.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwlessons.facts.shapes import shape
from hwlessons.formulas.kv_cache import kv_cache_bytes, kv_cache_bytes_per_token
from hwlessons.units import GIB


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("kv_gpt3-175b", "gpt3-175b"),
        ("kv_llama-2-7b", "llama-7b"),  # Llama-2-7B has the shape of the first one
        ("kv_llama-3-8b", "llama-3-8b"),
        ("kv_llama-3-70b", "llama-3-70b"),
    ],
)
def test_published(published, id_, name):
    case, one = published(id_), shape(name)
    given = case.inputs
    sizes = (one.num_layers, one.num_kv_heads, one.head_dim)
    assert sizes == (given["layers"], given["kv_heads"], given["head_dim"])
    cache = kv_cache_bytes(one, batch=given["batch"], context=given["context"], itemsize=given["bytes"])
    case.check({"bytes_per_token": kv_cache_bytes_per_token(one, given["bytes"]), "GiB_at_context": cache / GIB})


def test_grouped_queries_shrink_it(published):
    case, grouped = published("kv_llama2_70b_if_mha"), shape("llama-2-70b")
    every = replace(grouped, num_kv_heads=grouped.num_heads)
    assert every.num_kv_heads == case.inputs["kv_heads"]
    options = {"batch": 1, "context": case.inputs["context"], "itemsize": case.inputs["bytes"]}
    full, small = kv_cache_bytes(every, **options), kv_cache_bytes(grouped, **options)
    case.check({"GiB": full / GIB, "ratio_to_gqa": full / small})


def test_bad_input():
    one = shape("gpt2-small")
    for name in ("batch", "context", "itemsize"):
        options = {"batch": 1, "context": 8, "itemsize": 2} | {name: 0}
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got 0"):
            kv_cache_bytes(one, **options)
    with pytest.raises(ValueError, match=r"context must be at most max_positions \(1024\), got 1025"):
        kv_cache_bytes(one, batch=1, context=1025, itemsize=2)
    assert kv_cache_bytes(shape("llama-7b"), batch=1, context=10**6, itemsize=2) > 0
