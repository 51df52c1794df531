"""The sizes by which CUDA's caching allocator decides, as torch has them by default.

Source: pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h, read on 2026-11-30.
"""

from __future__ import annotations

from hwlessons.units import MIB

MIN_BLOCK_BYTES = 512
SMALL_LIMIT_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
MIN_OWN_SEGMENT_BYTES = 10 * MIB
SEGMENT_ROUNDING_BYTES = 2 * MIB


def block_size(num_bytes: int) -> int:
    """Bytes of the block for a request (`round_size`)."""
    return _round_up(num_bytes, MIN_BLOCK_BYTES)


def is_small(block_bytes: int) -> bool:
    """Whether a block of this size comes from the small pool (`get_pool`)."""
    return block_bytes <= SMALL_LIMIT_BYTES


def segment_size(block_bytes: int) -> int:
    """Bytes of the segment asked of the driver where no cached block fits (`get_allocation_size`)."""
    if block_bytes <= SMALL_LIMIT_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < MIN_OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return _round_up(block_bytes, SEGMENT_ROUNDING_BYTES)


def is_split_off(remaining_bytes: int, in_small_pool: bool) -> bool:
    """Whether what a block leaves over becomes a free block of its own (`should_split`)."""
    return remaining_bytes >= MIN_BLOCK_BYTES if in_small_pool else remaining_bytes > SMALL_LIMIT_BYTES


def _round_up(num_bytes: int, multiple: int) -> int:
    return -(-num_bytes // multiple) * multiple
