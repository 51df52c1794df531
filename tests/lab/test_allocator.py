"""The allocator simulator by hand, by invariants, and beside the real allocator where there is a GPU."""

from __future__ import annotations

import random

import pytest
import torch

from hwlessons.facts.shapes import TransformerShape
from hwlessons.lab.allocator import CachingAllocator, SimulatedOutOfMemoryError, replay
from hwlessons.lab.allocator_rules import segment_size
from hwlessons.lab.memory import trace
from hwlessons.lab.transformer import Transformer
from hwlessons.units import MIB


def counted(allocator):
    c = allocator.counters
    return c.allocated_bytes, c.reserved_bytes, c.inactive_split_bytes, c.num_segments


@pytest.mark.parametrize(
    ("num_bytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # more than 1 MiB is left over: split off
        (11 * MIB, 12 * MIB, 12 * MIB),  # exactly 1 MiB is left over: stays with its block
    ],
)
def test_sizes_of_one_block_and_its_segment(num_bytes, allocated, reserved):
    allocator = CachingAllocator()
    allocator.allocate("a", num_bytes)
    assert allocator.counters.requested_bytes == num_bytes
    assert allocator.counters.allocated_bytes == allocated
    assert allocator.counters.reserved_bytes == reserved
    assert allocator.counters.inactive_split_bytes == reserved - allocated


def test_small_blocks_share_a_segment():
    allocator = CachingAllocator()
    for name in range(4096):
        allocator.allocate(name, 500)
    assert counted(allocator) == (2 * MIB, 2 * MIB, 0, 1)
    allocator.allocate("one more", 1)
    assert counted(allocator) == (2 * MIB + 512, 4 * MIB, 2 * MIB - 512, 2)


def test_freed_memory_stays_reserved_until_the_cache_is_emptied():
    allocator = CachingAllocator()
    allocator.allocate("a", 64 * MIB)
    allocator.allocate("b", 64 * MIB)
    allocator.free("a")
    assert counted(allocator) == (64 * MIB, 128 * MIB, 0, 2)
    allocator.allocate("c", 64 * MIB)  # from the cache: no new segment
    assert counted(allocator) == (128 * MIB, 128 * MIB, 0, 2)
    allocator.free("c")
    assert allocator.empty_cache() == 64 * MIB
    assert counted(allocator) == (64 * MIB, 64 * MIB, 0, 1)
    assert allocator.empty_cache() == 0  # no live tensor is freed by emptying the cache
    assert allocator.peaks.reserved_bytes == 128 * MIB
    allocator.reset_peaks()
    assert allocator.peaks == allocator.counters


def test_the_smallest_block_that_fits_is_taken():
    allocator = CachingAllocator()
    for name, size in (("large", 40), ("middle", 30), ("small", 20), ("keeper", 10)):
        allocator.allocate(name, size * MIB)
    for name in ("large", "middle", "small"):
        allocator.free(name)
    allocator.allocate("a", 25 * MIB)
    # 30 MiB is the best fit; 5 MiB of it are split off and 40 and 20 MiB stay whole.
    assert counted(allocator) == (35 * MIB, 100 * MIB, 5 * MIB, 4)
    assert allocator.empty_cache() == 60 * MIB


def test_neighbours_merge_in_any_order():
    for order in ("abc", "acb", "bac", "bca", "cab", "cba"):
        allocator = CachingAllocator()
        for name in "abc":
            allocator.allocate(name, 5 * MIB)  # three in one segment of 20 MiB
        assert counted(allocator) == (15 * MIB, 20 * MIB, 5 * MIB, 1)
        for name in order:
            allocator.free(name)
        assert counted(allocator) == (0, 20 * MIB, 0, 1)
        allocator.allocate("whole", 20 * MIB)
        assert counted(allocator) == (20 * MIB, 20 * MIB, 0, 1)


def test_fragmentation_free_in_sum_but_not_in_one_piece():
    allocator = CachingAllocator(capacity_bytes=40 * MIB)
    for name in range(8):
        allocator.allocate(name, 5 * MIB)
    for name in range(0, 8, 2):
        allocator.free(name)
    assert counted(allocator) == (20 * MIB, 40 * MIB, 20 * MIB, 2)
    with pytest.raises(SimulatedOutOfMemoryError) as caught:
        allocator.allocate("half of what is free", 10 * MIB)
    assert str(caught.value) == (
        "tried to allocate 10,485,760 bytes; the device has 41,943,040, of which 41,943,040 are reserved and "
        "20,971,520 allocated; 20,971,520 are free but split off from blocks in use"
    )
    assert allocator.counters.num_alloc_retries == 1
    assert counted(allocator) == (20 * MIB, 40 * MIB, 20 * MIB, 2)
    allocator.allocate("a quarter", 5 * MIB)


def test_the_cache_is_emptied_before_giving_up():
    allocator = CachingAllocator(capacity_bytes=100 * MIB)
    allocator.allocate("a", 60 * MIB)
    allocator.free("a")
    allocator.allocate("b", 80 * MIB)
    assert counted(allocator) == (80 * MIB, 80 * MIB, 0, 1)
    assert allocator.counters.num_alloc_retries == 1


def test_small_and_large_pools_do_not_mix():
    allocator = CachingAllocator()
    allocator.allocate("large", 20 * MIB)
    allocator.free("large")
    allocator.allocate("small", MIB)
    assert counted(allocator) == (MIB, 22 * MIB, MIB, 2)


def test_zero_bytes_take_no_block():
    allocator = CachingAllocator()
    allocator.allocate("empty", 0)
    allocator.free("empty")
    assert counted(allocator) == (0, 0, 0, 0)


def test_replay_gives_the_counters_after_each_event():
    history = replay([("alloc", 1, 100), ("alloc", 2, 3 * MIB), ("free", 1, 100), ("free", 2, 3 * MIB)])
    assert [c.allocated_bytes for c in history] == [512, 3 * MIB + 512, 3 * MIB, 0]
    assert [c.reserved_bytes for c in history] == [2 * MIB, 22 * MIB, 22 * MIB, 22 * MIB]
    assert [c.cached_bytes for c in history][-1] == 22 * MIB


def test_bad_input():
    allocator = CachingAllocator()
    allocator.allocate("a", 1)
    with pytest.raises(ValueError, match="block id must not be live, got 'a'"):
        allocator.allocate("a", 1)
    with pytest.raises(ValueError, match="block id must be live to be freed, got 'b'"):
        allocator.free("b")
    with pytest.raises(ValueError, match="num_bytes must be at least 0, got -1 for 'b'"):
        allocator.allocate("b", -1)
    with pytest.raises(ValueError, match="capacity_bytes must be at least 1, got 0"):
        CachingAllocator(capacity_bytes=0)
    with pytest.raises(ValueError, match="an event's kind must be alloc or free, got 'move'"):
        replay([("move", 1, 1)])


def random_events(seed, num_events=2_000):
    """Allocations of all size classes and frees, ending with everything freed."""
    rng, live, events = random.Random(seed), {}, []
    for block_id in range(num_events):
        if live and rng.random() < 0.45:
            freed = rng.choice(sorted(live))
            events.append(("free", freed, live.pop(freed)))
        live[block_id] = int(2 ** rng.uniform(0, 26))
        events.append(("alloc", block_id, live[block_id]))
    rng.shuffle(order := list(live))
    return events + [("free", block_id, live[block_id]) for block_id in order]


@pytest.mark.parametrize("seed", range(3))
def test_invariants_on_random_events(seed):
    allocator = CachingAllocator()
    for counters in replay(random_events(seed), allocator):
        assert counters.requested_bytes <= counters.allocated_bytes <= counters.reserved_bytes
        assert counters.inactive_split_bytes <= counters.cached_bytes
    assert counted(allocator)[0] == counted(allocator)[2] == 0  # all merged into whole segments
    allocator.empty_cache()
    assert counted(allocator) == (0, 0, 0, 0)


def test_a_real_steps_timeline_replays():
    shape = TransformerShape.gpt2_like(num_layers=2, width=64, num_heads=2, vocab_size=256, max_positions=32)

    def build():
        model = Transformer(shape)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

        def step():
            logits = model(torch.zeros(4, 32, dtype=torch.int64))
            logits.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    timeline = trace(build).timeline
    allocator = CachingAllocator()
    history = dict(zip((e.operator_index for e in timeline.events), replay(timeline.events, allocator), strict=True))
    assert len(history) > 100
    # After the last event of each operator the requested bytes are the live bytes that the tracker counted.
    assert all(history[i].requested_bytes == timeline.total_bytes[i] for i in history if i < len(timeline))
    assert allocator.peaks.reserved_bytes > allocator.peaks.allocated_bytes > max(timeline.total_bytes)


def test_segment_sizes():
    assert [segment_size(s) // MIB for s in (512, MIB, MIB + 512, 10 * MIB, 10 * MIB + 512)] == [2, 2, 20, 10, 12]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with the real allocator: needs a GPU")
def test_equal_to_torchs_own_counters_on_a_gpu():
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    names = ("requested_bytes", "allocated_bytes", "reserved_bytes", "inactive_split_bytes")
    before = torch.cuda.memory_stats()
    live, allocator, worst = {}, CachingAllocator(), 0.0
    for kind, block_id, num_bytes in random_events(0, 500):
        if kind == "alloc":
            live[block_id] = torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
        else:
            del live[block_id]
        (simulated,) = replay([(kind, block_id, num_bytes)], allocator)
        stats = torch.cuda.memory_stats()
        real = {name: stats[f"{name}.all.current"] - before[f"{name}.all.current"] for name in names}
        assert simulated.requested_bytes == real["requested_bytes"]
        worst = max(worst, abs(simulated.reserved_bytes / real["reserved_bytes"] - 1))
    # Ties between equal blocks are broken by addresses, which only the driver knows.
    assert worst < 0.02
