"""What data-parallel training communicates: bytes that DDP hands over, and bytes that the network carried.

No postponed annotations here: DDP reads those of a communication hook.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

AVAILABLE = sys.platform == "linux"
_COUNTERS = Path("/proc/net/dev")
_SENT_BYTES = 8  # column of "transmit bytes" behind the interface's name


@dataclass
class Payload:
    """The gradient buckets that DDP has all-reduced, in order; `register_comm_hook(payload, count_and_all_reduce)`.

    Attributes:
        bucket_bytes: bytes of each bucket's gradients.
        bucket_parameters: parameters whose gradients each bucket holds.
    """

    bucket_bytes: list[int] = field(default_factory=list)
    bucket_parameters: list[int] = field(default_factory=list)


def count_and_all_reduce(payload: Payload, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A communication hook that notes the bucket and then does what DDP does without a hook: average over the ranks."""
    payload.bucket_bytes.append(bucket.buffer().nbytes)
    payload.bucket_parameters.append(len(bucket.gradients()))
    return allreduce_hook(dist.distributed_c10d._get_default_group(), bucket)


def loopback_sent_bytes() -> int:
    """Bytes that the loopback interface has sent since it came up, packet headers included. Linux only.

    Raises:
        NotImplementedError: on systems other than Linux.
    """
    if not AVAILABLE:
        raise NotImplementedError(f"the loopback counter is /proc/net/dev, which {sys.platform} does not have")
    line = next(line for line in _COUNTERS.read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[_SENT_BYTES])


def sent_by_all_ranks(
    communicate: Callable[[], object], *, most_repetitions: int = 40, agreement: float = 2e-3
) -> int | None:
    """Bytes over the loopback interface while all ranks call `communicate`, the least of several times.

    Every rank calls this at the same time; rank 0 gets the number, the others None. Whatever else uses the interface
    can only add, so the least is the best: it repeats until the two least differ by no more than a fraction of
    `agreement`, which what others send does not do by chance, or until `most_repetitions`.
    """
    samples: list[int] = []
    is_first, more = dist.get_rank() == 0, torch.tensor(1)
    while more:
        dist.barrier()
        before = loopback_sent_bytes() if is_first else 0
        dist.barrier()
        communicate()
        dist.barrier()
        samples.append(loopback_sent_bytes() - before if is_first else 0)
        least, second = sorted([*samples, sys.maxsize])[:2]
        more.fill_(len(samples) < most_repetitions and second - least > agreement * least)
        dist.broadcast(more, 0)
    return min(samples) if is_first else None
