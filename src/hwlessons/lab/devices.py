"""Which device the lessons run on, and what this machine is.

Lessons choose their device here and nowhere else, so that the same notebook runs on a laptop and on a GPU runner.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from functools import cache

import torch

from hwlessons.counts import check_count
from hwlessons.lab.host import available_cpus, cpu_name, memory_bytes

VARIABLE = "HWLESSONS_DEVICE"
PROBE_SIZE = 256


class DeviceError(ValueError):
    """The device that was asked for is unknown or not here; a notebook shows the message alone."""

    def _render_traceback_(self) -> list[str]:
        return [f"DeviceError: {self}"]


@dataclass(frozen=True)
class Machine:
    """What the numbers of a lesson were measured on. Neither host name nor paths are in it.

    Attributes:
        device: "cpu" or "cuda".
        device_name: the processor's or the GPU's name.
        kernels: whose kernels run: "cpu" or "cuda".
        torch, python, platform: versions, and operating system with instruction set.
        num_threads: threads that one torch operation on the CPU may use.
        num_cpus: processors that this process may use.
        total_memory_bytes: the device's memory (on a CPU: what this process may use of the system's).
        dtypes: number formats whose matrix multiply is not slow here: at least half of fp32's rate, measured on a CPU;
            what the compute capability promises on a GPU.
        details: further facts of this kind of device, such as the instruction set or the CUDA runtime.
    """

    device: str
    device_name: str
    kernels: str
    torch: str
    python: str
    platform: str
    num_threads: int
    num_cpus: int
    total_memory_bytes: int
    dtypes: tuple[str, ...]
    details: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict:
        """Plain values for JSON; the details become entries of their own."""
        fields = asdict(self) | {"dtypes": list(self.dtypes)}
        return {name: value for name, value in fields.items() if name != "details"} | dict(self.details)


def choose_device() -> torch.device:
    """The device of this lesson: `HWLESSONS_DEVICE` if it is set, else cuda where there is a GPU, else cpu.

    Raises:
        DeviceError: if the variable names something else than cpu or cuda, or cuda where torch finds no GPU.
    """
    name = os.environ.get(VARIABLE, "").strip()
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "mps":
        raise DeviceError(
            f"{VARIABLE}=mps is refused: the book's byte counts are for CPU and CUDA kernels; MPS has neither their "
            "allocator counters nor fp64; use cpu, or leave the variable unset"
        )
    if name not in ("cpu", "cuda"):
        raise DeviceError(f"{VARIABLE} must be cpu or cuda, or unset, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        reason = (
            "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no GPU with a driver"
        )
        raise DeviceError(f"{VARIABLE}=cuda, but {reason} (torch {torch.__version__}); use cpu or leave it unset")
    return torch.device(name)


def describe(device: torch.device | str | None = None) -> Machine:
    """What `device` (by default the chosen one) and its host are. Costs one short matrix multiply per number format."""
    device = choose_device() if device is None else torch.device(device)
    describe_kind = {"cpu": _describe_cpu, "cuda": _describe_cuda}.get(device.type)
    if describe_kind is None:
        raise DeviceError(f"device must be cpu or cuda, got {device.type!r}")
    return Machine(
        device=device.type,
        kernels=device.type,
        torch=torch.__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        num_threads=torch.get_num_threads(),
        num_cpus=available_cpus(),
        **describe_kind(device),
    )


def synchronize(device: torch.device | str) -> None:
    """Wait until the device has finished all work given to it; on a CPU there is nothing to wait for."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def set_threads(num_threads: int | None = None) -> int:
    """Fix how many threads a torch operation on the CPU may use, and return it; None means every available processor.

    Raises:
        ValueError: if `num_threads` is not an integer of at least 1.
    """
    num_threads = available_cpus() if num_threads is None else num_threads
    check_count("num_threads", num_threads)
    torch.set_num_threads(num_threads)
    return num_threads


def _describe_cpu(device: torch.device) -> dict:
    return {
        "device_name": cpu_name(),
        "total_memory_bytes": memory_bytes(),
        "dtypes": _fast_cpu_dtypes(torch.get_num_threads()),
        "details": (("instruction_set", torch.backends.cpu.get_cpu_capability()),),
    }


def _describe_cuda(device: torch.device) -> dict:
    properties = torch.cuda.get_device_properties(device)
    capability = (properties.major, properties.minor)
    since = {"fp32": (0, 0), "tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0), "fp8": (8, 9)}
    details = {
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "cuda_runtime": str(torch.version.cuda),
        "cpu_name": cpu_name(),
    }
    return {
        "device_name": properties.name,
        "total_memory_bytes": properties.total_memory,
        "dtypes": tuple(name for name, first in since.items() if capability >= first),
        "details": tuple(details.items()),
    }


@cache
def _fast_cpu_dtypes(num_threads: int) -> tuple[str, ...]:
    fp32_seconds = _matmul_seconds(torch.float32)
    candidates = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return ("fp32", *(name for name, dtype in candidates.items() if _matmul_seconds(dtype) <= 2 * fp32_seconds))


def _matmul_seconds(dtype: torch.dtype) -> float:
    """Seconds of the fastest of a few small matrix multiplies; a format without kernels is given up after two."""
    a = torch.ones(PROBE_SIZE, PROBE_SIZE, dtype=dtype)
    samples: list[float] = []
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        samples.append(time.perf_counter() - start)
        if len(samples) == 2 and min(samples) > 0.01:
            break
    return min(samples)
