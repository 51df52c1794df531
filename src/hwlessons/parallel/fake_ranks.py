"""One process that plays any rank of any number: torch's fake backend, whose collectives send and receive nothing.

Sizes are those of the real run; values are not. So it shows what a rank of 64 would hold, on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import distributed as dist


@contextmanager
def fake_rank(rank: int, num_ranks: int) -> Iterator[None]:
    """Inside the block, this process is `rank` of `num_ranks` that do not exist.

    Raises:
        ValueError: for a rank outside 0 … num_ranks - 1, or where a process group already exists.
    """
    if not 0 <= rank < num_ranks:
        raise ValueError(f"rank must be from 0 to {num_ranks - 1}, got {rank}")
    if dist.is_initialized():
        raise ValueError(f"fake_rank needs a process without a process group, but this one is rank {dist.get_rank()}")
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend "fake"

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=num_ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
