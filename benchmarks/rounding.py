"""Rounding 10 million fp32 values to small formats on one thread: this package beside torch, ml_dtypes and gfloat.

    python benchmarks/rounding.py [number of values]

Ours returns fp32 values; the casts of torch and ml_dtypes are timed alone (codes of one byte) and with the way back to
fp32. Exits with 1 if, for a format that torch lacks, ours is slower than ml_dtypes' cast alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import torch

from hwlessons.lab.rounding import round_to

TORCH = {"e4m3": torch.float8_e4m3fn}
ML_DTYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e2m1": ml_dtypes.float4_e2m1fn, "e3m2": ml_dtypes.float6_e3m2fn}
NUM_SAMPLES = 7


def candidates(name: str, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """What rounds `x` to the format, by label; the first is ours."""
    array, doubles, info = x.numpy(), x.double().numpy(), getattr(gfloat.formats, f"format_info_ocp_{name}")
    calls: dict[str, Callable[[], object]] = {
        "hwlessons, fp32 to fp32": lambda: round_to(x, name),
        "ml_dtypes, cast alone": lambda: array.astype(ML_DTYPES[name]),
        "ml_dtypes, cast and back": lambda: array.astype(ML_DTYPES[name]).astype(np.float32),
        "gfloat, fp64 to fp64": lambda: gfloat.round_ndarray(info, doubles, sat=True),
    }
    if name in TORCH:
        calls["torch, cast alone"] = lambda: x.to(TORCH[name])
        calls["torch, cast and back"] = lambda: x.to(TORCH[name]).float()
    return calls


def sample_seconds(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each call, taken in turns, so that a busy machine disturbs all alike; the first round is not kept."""
    samples: dict[str, list[float]] = {label: [] for label in calls}
    for _ in range(NUM_SAMPLES + 1):
        for label, call in calls.items():
            start = time.perf_counter()
            call()
            samples[label].append(time.perf_counter() - start)
    return {label: seconds[1:] for label, seconds in samples.items()}


def main(num_values: int) -> int:
    """Prints one table and the verdict; returns the exit code."""
    torch.set_num_threads(1)
    x = torch.randn(num_values, generator=torch.Generator().manual_seed(0))
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "ml_dtypes", "gfloat"))
    print(f"{num_values:,} fp32 values, one thread, seconds of {NUM_SAMPLES} runs; {versions}")
    print(f"{'format':<8}{'what':<28}{'fastest':>9}{'median':>9}")
    slower = []
    for name in ML_DTYPES:
        seconds = sample_seconds(candidates(name, x))
        for label, samples in seconds.items():
            print(f"{name:<8}{label:<28}{min(samples):>9.3f}{median(samples):>9.3f}")
        ours, theirs = (min(seconds[label]) for label in ("hwlessons, fp32 to fp32", "ml_dtypes, cast alone"))
        if name not in TORCH and ours > theirs:
            slower.append(f"{name}: {ours:.3f} s against {theirs:.3f} s")
    print(
        "slower than ml_dtypes: " + "; ".join(slower)
        if slower
        else "at least as fast as ml_dtypes where torch has no cast"
    )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000))
