"""The loopback interface carries what the ring formula says, at 2, 3 and 4 ranks."""

from __future__ import annotations

import pytest

from hwlessons.formulas.collectives import bytes_sent_per_rank
from hwlessons.parallel import traffic
from hwlessons.parallel.fake_ranks import fake_rank
from hwlessons.parallel.launcher import launch

PAYLOAD_BYTES = 16 * 2**20


def all_reduces() -> dict[str, int | None]:
    import torch
    import torch.distributed as dist

    from hwlessons.parallel.traffic import sent_by_all_ranks

    dist.init_process_group("gloo")
    payload, sent = torch.ones(4 * 2**20), {}
    for num_ranks in (2, 3, 4):
        group = dist.new_group(range(num_ranks))
        inside = dist.get_rank() < num_ranks
        sent[str(num_ranks)] = sent_by_all_ranks(
            lambda group=group, inside=inside: dist.all_reduce(payload, group=group) if inside else None
        )
    dist.destroy_process_group()
    return sent


@pytest.mark.skipif(not traffic.AVAILABLE, reason="the loopback counter is Linux's")
def test_bytes_on_the_wire() -> None:
    sent = launch(all_reduces, num_processes=4, quiet=True).results[0]
    for num_ranks in (2, 3, 4):
        ring = num_ranks * bytes_sent_per_rank("all_reduce", PAYLOAD_BYTES, num_ranks)
        assert sent[str(num_ranks)] == pytest.approx(float(ring), rel=0.02)
        assert sent[str(num_ranks)] > ring  # headers


@pytest.mark.parametrize(
    ("samples", "least"),
    [([1000, 1001], 1000), ([1500, 1001, 9000, 1200, 1000, 1], 1000), (range(2000, 1000, -100), 1100)],
)
def test_the_least_of_what_others_disturb(monkeypatch: pytest.MonkeyPatch, samples: list[int], least: int) -> None:
    """It goes on until the two least agree, or ten times."""
    counter = iter([reading for sample in samples for reading in (7, 7 + sample)])
    monkeypatch.setattr(traffic, "loopback_sent_bytes", lambda: next(counter))
    with fake_rank(0, 2):
        assert traffic.sent_by_all_ranks(lambda: None, most_repetitions=10) == least


def test_no_counter_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "AVAILABLE", False)
    with pytest.raises(NotImplementedError, match="/proc/net/dev"):
        traffic.loopback_sent_bytes()
