"""What a GPU runner must bring. Looked up without importing any of it, so that what is missing can be named."""

from __future__ import annotations

import re
from importlib import metadata

from hwlessons.publish.paths import PublishError

NEEDED = ("torch", "numpy", "matplotlib", "nbclient", "ipykernel", "anywidget")
OLDEST_TORCH = (2, 9)


def check_runner() -> None:
    """Checks that the running Python can run lessons; nothing is installed.

    Raises:
        PublishError: A package is missing, or torch is older than the lessons support.
    """
    versions = {name: _version(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    if versions["torch"] is None:
        raise PublishError("this Python has no torch; name the Python that has it: make gpu PYTHON=/path/to/python")
    if missing:
        raise PublishError(
            f"this Python lacks {', '.join(missing)}; install them: python -m pip install {' '.join(missing)}"
        )
    numbers = tuple(map(int, re.findall(r"\d+", versions["torch"])[:2]))
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise PublishError(f"torch {versions['torch']} is too old for the lessons; they need torch {oldest} or newer")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
