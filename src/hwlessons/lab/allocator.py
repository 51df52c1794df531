"""A simulator of CUDA's caching allocator: why allocated, reserved and needed bytes are three numbers.

It follows the rules that torch's allocator has by default, for one stream and without CUDA graphs, as they are written
in pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (`round_size`, `get_pool`, `get_allocation_size`,
`get_free_block`, `should_split`, `free_block`, `release_cached_blocks`), read on 2026-11-30:

- sizes are rounded up to 512 bytes; up to 1 MiB they come from the small pool, above from the large one;
- the smallest cached block that fits is taken (the lowest address among equals); what is left over is split off if it
  is at least 512 bytes in the small pool, more than 1 MiB in the large one;
- if none fits, a new segment is asked of the driver: 2 MiB for the small pool, 20 MiB below 10 MiB, else the size
  rounded up to 2 MiB;
- if the driver has no room, all cached segments without a live block go back to it, and the segment is asked for again;
- a freed block merges with free neighbours of its segment and stays cached.

Addresses follow the order in which segments were made, which a driver does not promise: with several free blocks of
equal size in different segments a real run may choose another one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from hwlessons.lab.allocator_rules import block_size, is_small, is_split_off, segment_size


class SimulatedOutOfMemoryError(RuntimeError):
    """No cached block fits and the device has no room for another segment, even after the cache was emptied."""


@dataclass(frozen=True)
class AllocatorCounters:
    """The allocator's counters at one moment; names as in `torch.cuda.memory_stats`, for all pools together.

    Attributes:
        requested_bytes: what the live tensors asked for.
        allocated_bytes: the blocks they live in (with one stream also the active bytes).
        reserved_bytes: all segments held from the driver: what the driver sees.
        inactive_split_bytes: free pieces of segments that also hold something live: they cannot go back.
        num_segments: segments held from the driver.
        num_alloc_retries: times that the cache was emptied because the driver had no room.
    """

    requested_bytes: int = 0
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    inactive_split_bytes: int = 0
    num_segments: int = 0
    num_alloc_retries: int = 0

    @property
    def cached_bytes(self) -> int:
        """Reserved but not allocated."""
        return self.reserved_bytes - self.allocated_bytes


@dataclass(eq=False)
class _Block:
    address: int
    num_bytes: int
    is_small: bool
    requested_bytes: int = 0
    is_live: bool = False
    previous: _Block | None = field(default=None, repr=False)
    next: _Block | None = field(default=None, repr=False)

    @property
    def is_split(self) -> bool:
        return self.previous is not None or self.next is not None


class CachingAllocator:
    """One device's caching allocator, by bytes only.

    Args:
        capacity_bytes: what the driver can give to segments; None for as much as is asked for.

    Raises:
        ValueError: if `capacity_bytes` is below 1.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        if capacity_bytes is not None and capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be at least 1, got {capacity_bytes!r}")
        self.capacity_bytes = capacity_bytes
        self._live: dict[Hashable, _Block | None] = {}
        self._free: dict[bool, list[tuple[int, int, _Block]]] = {True: [], False: []}
        self._next_address = 0
        self._now = dict.fromkeys(AllocatorCounters.__dataclass_fields__, 0)
        self._peak = dict(self._now)

    @property
    def counters(self) -> AllocatorCounters:
        """The counters now."""
        return AllocatorCounters(**self._now)

    @property
    def peaks(self) -> AllocatorCounters:
        """The largest value of each counter since the start or `reset_peaks`, not all at the same moment."""
        return AllocatorCounters(**self._peak)

    def reset_peaks(self) -> None:
        """Let the peaks begin again at the present values."""
        self._peak = dict(self._now)

    def allocate(self, block_id: Hashable, num_bytes: int) -> None:
        """Make room for `num_bytes` under the name `block_id`; zero bytes take no block, as in torch.

        Raises:
            ValueError: if the id is live already or `num_bytes` is negative.
            SimulatedOutOfMemoryError: if there is no room; the message has the numbers that torch's would have.
        """
        if block_id in self._live:
            raise ValueError(f"block id must not be live, got {block_id!r}, which is")
        if num_bytes < 0:
            raise ValueError(f"num_bytes must be at least 0, got {num_bytes} for {block_id!r}")
        if num_bytes == 0:
            self._live[block_id] = None
            return
        size = block_size(num_bytes)
        block = self._take_cached(size) or self._new_segment(size, num_bytes)
        if is_split_off(block.num_bytes - size, block.is_small):
            self._split(block, size)
        block.is_live, block.requested_bytes = True, num_bytes
        self._live[block_id] = block
        self._count(requested_bytes=num_bytes, allocated_bytes=block.num_bytes)

    def free(self, block_id: Hashable) -> None:
        """Give a block back to the cache.

        Raises:
            ValueError: if the id is not live.
        """
        if block_id not in self._live:
            raise ValueError(f"block id must be live to be freed, got {block_id!r}, which is not")
        block = self._live.pop(block_id)
        if block is None:
            return
        self._count(requested_bytes=-block.requested_bytes, allocated_bytes=-block.num_bytes)
        block.is_live, block.requested_bytes = False, 0
        for neighbour in (block.previous, block.next):
            if neighbour is not None and not neighbour.is_live:
                self._uncache(neighbour)
                self._merge(block, neighbour)
        self._cache(block)

    def empty_cache(self) -> int:
        """Give every segment without a live block back to the driver and return how many bytes those were.

        Live tensors keep theirs, and so does every free piece beside them.
        """
        released = 0
        for blocks in self._free.values():
            for _, _, block in [entry for entry in blocks if not entry[2].is_split]:
                self._uncache(block)
                self._count(reserved_bytes=-block.num_bytes, num_segments=-1)
                released += block.num_bytes
        return released

    def _take_cached(self, size: int) -> _Block | None:
        blocks = self._free[is_small(size)]
        index = bisect_left(blocks, (size, -1))
        if index == len(blocks):
            return None
        block = blocks[index][2]
        self._uncache(block)
        return block

    def _new_segment(self, size: int, num_bytes: int) -> _Block:
        segment_bytes = segment_size(size)
        if not self._has_room(segment_bytes):
            self.empty_cache()
            self._count(num_alloc_retries=1)
            if not self._has_room(segment_bytes):
                raise SimulatedOutOfMemoryError(self._out_of_memory_message(num_bytes))
        block = _Block(self._next_address, segment_bytes, is_small(size))
        self._next_address += segment_bytes
        self._count(reserved_bytes=segment_bytes, num_segments=1)
        return block

    def _has_room(self, segment_bytes: int) -> bool:
        return self.capacity_bytes is None or self._now["reserved_bytes"] + segment_bytes <= self.capacity_bytes

    def _cache(self, block: _Block) -> None:
        insort(self._free[block.is_small], (block.num_bytes, block.address, block))
        if block.is_split:
            self._count(inactive_split_bytes=block.num_bytes)

    def _uncache(self, block: _Block) -> None:
        blocks = self._free[block.is_small]
        del blocks[bisect_left(blocks, (block.num_bytes, block.address))]
        if block.is_split:
            self._count(inactive_split_bytes=-block.num_bytes)

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.num_bytes - size, block.is_small, previous=block, next=block.next)
        if rest.next is not None:
            rest.next.previous = rest
        block.num_bytes, block.next = size, rest
        self._cache(rest)

    def _merge(self, block: _Block, neighbour: _Block) -> None:
        block.num_bytes += neighbour.num_bytes
        if neighbour is block.previous:
            block.address, block.previous = neighbour.address, neighbour.previous
            if block.previous is not None:
                block.previous.next = block
        else:
            block.next = neighbour.next
            if block.next is not None:
                block.next.previous = block

    def _count(self, **changes: int) -> None:
        for name, change in changes.items():
            self._now[name] += change
            self._peak[name] = max(self._peak[name], self._now[name])

    def _out_of_memory_message(self, num_bytes: int) -> str:
        now = self._now
        return (
            f"tried to allocate {num_bytes:,} bytes; the device has {self.capacity_bytes:,}, of which "
            f"{now['reserved_bytes']:,} are reserved and {now['allocated_bytes']:,} allocated; "
            f"{now['inactive_split_bytes']:,} are free but split off from blocks in use"
        )


def replay(events: Iterable[tuple], allocator: CachingAllocator | None = None) -> list[AllocatorCounters]:
    """The counters after each of `events`: tuples that begin with kind ("alloc" or "free"), block id and bytes.

    A step's `StepMemory.timeline.events` are such events.

    Raises:
        ValueError: for another kind, a block that is allocated twice, or one that is freed without being live.
        SimulatedOutOfMemoryError: where `allocator` has a capacity that does not suffice.
    """
    allocator = CachingAllocator() if allocator is None else allocator
    history = []
    for kind, block_id, num_bytes, *_ in events:
        if kind == "alloc":
            allocator.allocate(block_id, num_bytes)
        elif kind == "free":
            allocator.free(block_id)
        else:
            raise ValueError(f"an event's kind must be alloc or free, got {kind!r}")
        history.append(allocator.counters)
    return history
