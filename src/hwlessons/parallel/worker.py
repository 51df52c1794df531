"""One rank: runs a script or a module as torchrun would, ends with its agent, and says in a file why it failed."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from hwlessons.parallel import lifeline, stacks
from hwlessons.parallel.agent import PARENT
from hwlessons.parallel.reports import report_failure


def main(arguments: list[str]) -> None:
    """Runs `script [argument …]` or `-m module [argument …]`; never returns after a failure."""
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
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return
        report_failure(error, script)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # at once: the interpreter's own end may wait for ranks that will never come


if __name__ == "__main__":
    main(sys.argv[1:])
