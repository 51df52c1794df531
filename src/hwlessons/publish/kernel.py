"""The Jupyter kernel of one lesson: this very Python, watched for memory, and gone when the lesson is."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import psutil
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from hwlessons.publish.modules import PACKAGE_FOLDER


class ThisPython(KernelSpecManager):
    """Answers every kernel name with the running interpreter, whatever kernels the user has registered."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Returns the kernel of the running interpreter."""
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def kernel_manager() -> AsyncKernelManager:
    """Returns a manager for one kernel of the running interpreter, not yet started."""
    return AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())


def kernel_environment() -> dict[str, str]:
    """Returns the environment of a lesson's kernel.

    The package's own folder comes first on the path, so that the code that runs is the code that the key was taken of.
    """
    path = os.pathsep.join(filter(None, [str(PACKAGE_FOLDER.parent), os.environ.get("PYTHONPATH")]))
    inherited = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return {**inherited, "PYTHONPATH": path, "HWLESSONS_BUILD": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def process_id(manager: AsyncKernelManager) -> int | None:
    """Returns the process id of a started kernel."""
    provisioner: Any = manager.provisioner
    return getattr(provisioner, "pid", None)


def peak_memory_bytes(pid: int | None) -> int:
    """Returns the most memory that a process has held in RAM, in bytes; 0 where it cannot be told.

    Linux and Windows keep the peak themselves; elsewhere it is what the process holds now.
    """
    if pid is None:
        return 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(psutil.Error):
        memory = psutil.Process(pid).memory_info()
        return getattr(memory, "peak_wset", memory.rss)
    return 0


def kill(pid: int | None) -> None:
    """Ends a kernel and the processes it started, at once."""
    if pid is None:
        return
    with contextlib.suppress(psutil.Error):
        family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
