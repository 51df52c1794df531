"""Timing: synchronised, warmed up, all samples kept; stages that count every second once."""

from __future__ import annotations

import time

import pytest

from hwlessons.lab import timing
from hwlessons.lab.timing import StageClock, Timing, time_callable


@pytest.fixture
def fake_time(monkeypatch):
    """A clock that stands still until told, and a record of synchronisations."""

    class Fake:
        now = 0.0
        synchronised = 0

        def pass_(self, seconds):
            self.now += seconds

    fake = Fake()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: fake.now)

    def synchronize(device):
        fake.synchronised += 1

    monkeypatch.setattr(timing, "synchronize", synchronize)
    return fake


def test_warm_up_is_not_kept_and_all_samples_are(fake_time):
    durations = iter([100.0, 50.0, 3.0, 1.0, 2.0, 9.0])
    result = time_callable(lambda: fake_time.pass_(next(durations)), num_samples=4, num_warmup=2)
    assert result == Timing((3.0, 1.0, 2.0, 9.0), num_warmup=2)
    assert (result.median_seconds, result.min_seconds, result.max_seconds) == (2.5, 1.0, 9.0)
    assert fake_time.synchronised == 8  # before and after each sample


def test_work_that_the_device_still_does_is_counted(fake_time, monkeypatch):
    monkeypatch.setattr(timing, "synchronize", lambda device: fake_time.pass_(5.0))
    assert time_callable(lambda: fake_time.pass_(1.0), num_samples=1).samples_seconds == (6.0,)


def test_real_time():
    result = time_callable(lambda: time.sleep(0.01), num_samples=3, num_warmup=0)
    assert all(0.01 <= sample < 1 for sample in result.samples_seconds)


def test_bad_input():
    with pytest.raises(ValueError, match="call must be a function without arguments, got float: write lambda"):
        time_callable(1.0)
    for counts in ({"num_samples": 0}, {"num_warmup": -1}):
        with pytest.raises(ValueError, match="num_samples must be at least 1 and num_warmup at least 0"):
            time_callable(lambda: None, **counts)


def test_stages_add_up_and_inner_stages_pause_outer_ones(fake_time):
    clock = StageClock()
    for _ in range(2):
        with clock.stage("batch"):
            fake_time.pass_(1.0)
            with clock.stage("read"):
                fake_time.pass_(10.0)
            fake_time.pass_(0.5)
        fake_time.pass_(1000.0)  # outside of every stage
        with clock.stage("forward"):
            fake_time.pass_(4.0)
    assert dict(clock.seconds) == {"batch": 3.0, "read": 20.0, "forward": 8.0}
    assert clock.total_seconds == 31.0
    assert fake_time.synchronised == 12  # at both ends of each stage
    clock.reset()
    assert clock.total_seconds == 0


def test_a_stage_that_fails_still_counts_and_closes(fake_time):
    clock = StageClock()
    with pytest.raises(RuntimeError), clock.stage("forward"):
        fake_time.pass_(2.0)
        raise RuntimeError
    with clock.stage("loss"):
        fake_time.pass_(1.0)
    assert dict(clock.seconds) == {"forward": 2.0, "loss": 1.0}


def test_seconds_cannot_be_changed_and_reset_not_called_inside():
    clock = StageClock()
    with clock.stage("forward"), pytest.raises(ValueError, match="outside of every stage, got it inside 'forward'"):
        clock.reset()
    with pytest.raises(TypeError):
        clock.seconds["forward"] = 0.0
