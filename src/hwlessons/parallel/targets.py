"""What can be launched, as arguments for Python: a module, a script, or a function that is written to a script."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Target = ModuleType | Callable[..., Any] | str | os.PathLike


def python_arguments(target: Target, folder: Path) -> list[str]:
    """`-m module`, or the path of a script; a function becomes a script in `folder` that reports what it returns.

    Raises:
        ValueError: if there is no such file, or the function's source cannot be read.
    """
    if isinstance(target, ModuleType):
        return ["-m", target.__name__]
    if isinstance(target, str | os.PathLike):
        if not Path(target).is_file():
            raise ValueError(f"target must be a script, a module or a function, got {str(target)!r}, which is no file")
        return [str(Path(target).resolve())]
    try:
        source = textwrap.dedent(inspect.getsource(target))
    except (OSError, TypeError):
        source = ""
    if not source.startswith("def "):
        raise ValueError(f"target must be a script, a module or a function made with def, got {target!r}")
    name = target.__name__
    call = f"import sys\n\nfrom hwlessons.parallel.reports import report\n\nreport({name}(*sys.argv[1:]))\n"
    script = folder / f"{name}.py"
    script.write_text(f"{source}\n\n{call}", "utf8")
    return [str(script)]


def script_name(arguments: list[str]) -> str:
    """The name of the file that `python_arguments` runs."""
    return f"{arguments[1].rpartition('.')[2]}.py" if arguments[0] == "-m" else Path(arguments[0]).name
