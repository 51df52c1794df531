"""Save a run and resume it so that it goes on as if it had never stopped.

This is a checkpoint file, which has nothing to do with activation checkpointing.
"""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from hwlessons.lab.training import TrainingRecord

FORMAT = "hwlessons run 1"


class Stateful(Protocol):
    """Anything with a state to save: a scheduler, a gradient scaler, a batch iterator."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def save_run(
    path: str | os.PathLike,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    record: TrainingRecord,
    **others: Stateful,
) -> Path:
    """Write model, optimizer, record, random-number states and `others` (such as `batches=`) to one file.

    The file is written beside its place and then renamed: a crash leaves the old file or the new one, never half of
    one. The random-number states are Python's and torch's on every device; NumPy's is not in it.

    Raises:
        ValueError: if the folder does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path must be in an existing folder, got {str(path)!r}")
    content = {
        "format": FORMAT,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "record": asdict(record),
        "others": {name: other.state_dict() for name, other in others.items()},
        "random": {
            "python": random.getstate(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        },
    }
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def resume_run(
    path: str | os.PathLike, model: nn.Module, optimizer: torch.optim.Optimizer, **others: Stateful
) -> TrainingRecord:
    """Load what `save_run` wrote into the same kinds of objects, and return the record to go on with.

    Only tensors and plain values are read (`weights_only=True`): a file from a stranger can run no code.

    Raises:
        ValueError: if there is no such file, it is not a saved run, or it holds other `others` than are given.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a file written by save_run, got {str(path)!r}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{str(path)!r} cannot be read as a saved run: {type(error).__name__}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is not a saved run of the format {FORMAT!r}")
    if set(content["others"]) != set(others):
        saved, given = sorted(content["others"]), sorted(others)
        raise ValueError(f"the saved run also holds {saved}, but resume_run was given {given}")
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    for name, other in others.items():
        other.load_state_dict(content["others"][name])
    random.setstate(content["random"]["python"])
    torch.set_rng_state(content["random"]["cpu"])
    if torch.cuda.is_available() and len(content["random"]["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(content["random"]["cuda"])
    record = content["record"]
    return TrainingRecord(**record | {"losses": tuple(record["losses"])})
