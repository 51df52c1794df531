"""torchrun's agent as a child of the launcher: it ends with its parent, and says in a file which rank ended how."""

from __future__ import annotations

import os
import signal
import sys

from hwlessons.parallel import lifeline
from hwlessons.parallel.reports import Failure, report_exits

PARENT = "HWLESSONS_PARENT_PID"


def main() -> int:
    """Runs torchrun with this process's arguments; its exit code."""
    lifeline.hold(int(os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())  # the workers' parent
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main()
    except ChildFailedError as error:
        report_exits(
            {rank: Failure(rank, _ending(one.exitcode), at=one.timestamp) for rank, one in error.failures.items()}
        )
        return 1
    return 0


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"the process ended with exit code {exit_code}"
    try:
        return f"the process was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"the process was killed by signal {-exit_code} (SIG)"


if __name__ == "__main__":
    sys.exit(main())
