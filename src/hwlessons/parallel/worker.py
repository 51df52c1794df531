"""One rank: runs a script or a module as torchrun would, ends with its agent, and says in a file why it failed."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path
from typing import NoReturn

from hwlessons.parallel import lifeline, stacks
from hwlessons.parallel.agent import PARENT
from hwlessons.parallel.reports import report_failure


def main(arguments: list[str]) -> NoReturn:
    """Runs `script [argument …]` or `-m module [argument …]`, and ends the process."""
    lifeline.hold(int(os.environ[PARENT]))
    stacks.write_on_request()
    is_module = arguments[0] == "-m"
    target, sys.argv = arguments[is_module], arguments[is_module:]
    script = target.rpartition(".")[2] + ".py" if is_module else target
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(target).resolve().parent)
            runpy.run_path(target, run_name="__main__")
    except BaseException as error:
        if not (isinstance(error, SystemExit) and error.code in (None, 0)):
            report_failure(error, script)
            _leave(1)  # at once: handlers at exit may wait for ranks that will never come
    atexit._run_exitfuncs()
    _leave(0)


def _leave(exit_code: int) -> NoReturn:
    """End at once: in the interpreter's own end, threads of a gloo group that still exists may abort the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main(sys.argv[1:])
