"""Collectives counted by name while a block runs, with torch's CommDebugMode."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed.tensor.debug import CommDebugMode

_NAMES = {
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "allreduce_": "all_reduce",
}


@contextmanager
def counted_collectives() -> Iterator[dict[str, int]]:
    """A dictionary that holds, when the block has ended, how often it ran each collective, e.g. {"all_reduce": 4}."""
    counts: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook")  # the counter's own hook, on an embedding
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")  # logits are a view; nothing writes into them
        with CommDebugMode() as counter:
            yield counts
    for operator, count in counter.get_comm_counts().items():
        name = str(operator).rpartition(".")[2]
        name = _NAMES.get(name, name)
        counts[name] = counts.get(name, 0) + count
