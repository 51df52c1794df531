"""Timing that waits for the device, and a clock that splits a step into stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

import torch

from hwlessons.lab.devices import synchronize


@dataclass(frozen=True)
class Timing:
    """All samples of one measurement, in seconds, in the order in which they were taken."""

    samples_seconds: tuple[float, ...]
    num_warmup: int

    @property
    def median_seconds(self) -> float:
        """The middle sample: what a typical call took."""
        return median(self.samples_seconds)

    @property
    def min_seconds(self) -> float:
        """The fastest sample: the least disturbed by other programs."""
        return min(self.samples_seconds)

    @property
    def max_seconds(self) -> float:
        """The slowest sample."""
        return max(self.samples_seconds)


def time_callable(
    call: Callable[[], object], *, device: torch.device | str = "cpu", num_samples: int = 10, num_warmup: int = 2
) -> Timing:
    """Time `call()` several times, each until the device has finished.

    The first calls load kernels, fill caches and choose algorithms: `num_warmup` of them are not kept.

    Raises:
        ValueError: if `call` cannot be called, `num_samples` is below 1 or `num_warmup` below 0.
    """
    if not callable(call):
        raise ValueError(f"call must be a function without arguments, got {type(call).__name__}: write lambda: ...")
    if num_samples < 1 or num_warmup < 0:
        raise ValueError(
            f"num_samples must be at least 1 and num_warmup at least 0, got {num_samples} and {num_warmup}"
        )
    for _ in range(num_warmup):
        call()
    samples = []
    for _ in range(num_samples):
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        samples.append(time.perf_counter() - start)
    return Timing(tuple(samples), num_warmup)


class StageClock:
    """Seconds spent in each named stage of a step, synchronised at every boundary.

    A stage inside another one stops the outer one's clock, so that no second counts twice. Synchronising takes away
    the overlap that a real step has on a GPU: the stages are right, their sum is an upper bound of the step.

    Example:
        clock = StageClock(device)
        with clock.stage("forward"):
            logits = model(tokens)
        clock.seconds["forward"]
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._last = 0.0

    @property
    def seconds(self) -> MappingProxyType[str, float]:
        """Seconds by stage, in the order in which the stages were first entered."""
        return MappingProxyType(self._seconds)

    @property
    def total_seconds(self) -> float:
        """Seconds of all stages together."""
        return sum(self._seconds.values())

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block to the stage `name`, added to what it already has."""
        self._book()
        self._seconds.setdefault(name, 0.0)
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def reset(self) -> None:
        """Forget all seconds, for instance after warm-up steps.

        Raises:
            ValueError: inside a stage.
        """
        if self._open:
            raise ValueError(f"reset must be called outside of every stage, got it inside {self._open[-1]!r}")
        self._seconds.clear()

    def _book(self) -> None:
        synchronize(self.device)
        now = time.perf_counter()
        if self._open:
            self._seconds[self._open[-1]] += now - self._last
        self._last = now
