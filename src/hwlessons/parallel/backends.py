"""Whether a communication backend of torch.distributed can be used here, and if not, why."""

from __future__ import annotations

import torch
from torch import distributed

BACKENDS = ("gloo", "nccl")


def backend_for(device: torch.device | str) -> str:
    """The backend that is usual for tensors on `device`: nccl on CUDA, gloo on a CPU."""
    return "nccl" if torch.device(device).type == "cuda" else "gloo"


def missing_backend(backend: str, num_processes: int) -> str | None:
    """Why `num_processes` on this host cannot use `backend`, in one line; None if they can."""
    if backend not in BACKENDS:
        return f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}"
    if not distributed.is_available():
        return "this torch is built without torch.distributed"
    if not {"gloo": distributed.is_gloo_available, "nccl": distributed.is_nccl_available}[backend]():
        return f"this torch (version {torch.__version__}) is built without {backend}"
    if backend == "nccl" and torch.cuda.device_count() < num_processes:
        return f"nccl needs one GPU for each of {num_processes} processes, found {torch.cuda.device_count()}; use gloo"
    return None
