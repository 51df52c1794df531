"""Facts about the computer that torch does not report: processor name, usable processors and memory."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def available_cpus() -> int:
    """Processors that this process may use, which in a container or a batch job is fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """The processor's name as the operating system reports it, else the instruction set, e.g. "arm64"."""
    name = {"Linux": _linux_cpu_name, "Darwin": _macos_cpu_name}.get(platform.system(), platform.processor)()
    return name or platform.machine()


def memory_bytes() -> int:
    """Memory that this process may use: the system's, or its control group's limit where that is smaller."""
    if platform.system() == "Windows":
        return _windows_memory_bytes()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, *_control_group_limits()) if platform.system() == "Linux" else total


def _linux_cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in fields if key.strip() in ("model name", "Model")), "")


def _macos_cpu_name() -> str:
    query = ["sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _control_group_limits() -> list[int]:
    limits = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return limits or [2**63]


def _windows_memory_bytes() -> int:
    import ctypes

    class MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("dwLength", ctypes.c_ulong),
            ("dwMemoryLoad", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "free", "d", "e", "f", "g", "h")),
        )

    status = MemoryStatus(dwLength=ctypes.sizeof(MemoryStatus))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return status.total
