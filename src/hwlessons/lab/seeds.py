"""One seed for every source of random numbers that the lessons use."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int) -> int:
    """Seed Python, NumPy and torch (every device) and return the seed.

    The same seed gives the same numbers on the same device and torch version; CPU and CUDA draw differently.

    Raises:
        ValueError: if `seed` is not an integer from 0 to 2**32 - 1, which is NumPy's range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to {2**32 - 1}, got {seed!r}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return seed
