"""Save and resume a data-parallel run with torch.distributed.checkpoint, also on another number of ranks.

Tensors are in the format of `torch.distributed.checkpoint`; `run.json` beside them says of which model and run they
are and how far it had come. Dropout is off in the baseline, so no random-number state is needed to go on exactly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn

from hwlessons.parallel.ddp_settings import SAME_RUN, BaselineSettings

RUN = "run.json"
FORMAT = "hwlessons data-parallel run 1"


@dataclass(frozen=True)
class Progress:
    """How far a run has come: where its rows stand, and the mean loss per token of each optimizer step (nats)."""

    epoch: int = 0
    position: int = 0
    losses: Sequence[float] = ()


def save(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: BaselineSettings, progress: Progress
) -> None:
    """Write a checkpoint; all ranks call this, each writes a part. `run.json` comes last: with it, the rest is whole.

    Raises:
        ValueError: on every rank, if the folder holds one already.
    """
    from torch.distributed import checkpoint as dcp  # here: a second of imports that a run without checkpoints saves
    from torch.distributed.checkpoint.state_dict import get_state_dict

    if (folder / RUN).exists():
        raise ValueError(f"save must be a new folder, but {str(folder)!r} holds a checkpoint")
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dist.barrier()  # nobody writes before everybody has looked
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)
    if dist.get_rank() == 0:
        run = {name: getattr(settings, name) for name in SAME_RUN}
        (folder / RUN).write_text(json.dumps({"format": FORMAT, "run": run, "progress": asdict(progress)}), "utf8")
    dist.barrier()


def read_progress(folder: Path, settings: BaselineSettings) -> Progress:
    """How far the saved run had come.

    Raises:
        ValueError: if there is no checkpoint, or it is of another model or run; the message names the field.
    """
    try:
        content = json.loads((folder / RUN).read_text("utf8"))
    except (OSError, ValueError):
        raise ValueError(f"resume must be the folder of a finished checkpoint, got {str(folder)!r}") from None
    if content.get("format") != FORMAT:
        raise ValueError(f"resume must be a checkpoint of the format {FORMAT!r}, got {content.get('format')!r}")
    for name in SAME_RUN:
        saved, here = content["run"][name], getattr(settings, name)
        if saved != here:
            raise ValueError(f"{name} must be {saved!r} as in the checkpoint {str(folder)!r}, got {here!r}")
    return Progress(**content["progress"])


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load model and optimizer in place; all ranks call this, however many had saved them."""
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
