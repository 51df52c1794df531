"""What each rank leaves behind for the process that launched it: its result, or why it failed."""

from __future__ import annotations

import json
import os
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = "HWLESSONS_REPORTS"


@dataclass(frozen=True)
class Failure:
    """How one rank ended.

    Attributes:
        rank: which.
        error: the exception as `Type: message`, or the signal or exit code that ended the process.
        place: file and line of the rank's own script, "" if unknown.
        traceback: the whole traceback, "" if there was none.
        at: when, in seconds since the epoch.
    """

    rank: int
    error: str
    place: str = ""
    traceback: str = ""
    at: float = 0.0


def report(result: Any) -> None:
    """Hand this rank's result to the process that launched it; outside of a launch, print it as one line of JSON.

    Raises:
        ValueError: if `result` cannot be written as JSON; a tensor needs `.tolist()` or `.item()`.
    """
    try:
        text = json.dumps(result)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a rank's result must be plain values for JSON, got {type(result).__name__}: {error}"
        ) from None
    if FOLDER in os.environ:
        _write(f"result{os.environ['RANK']}.json", text)
    else:
        print(text, flush=True)


def report_failure(error: BaseException, script: str) -> None:
    """Leave behind how this rank failed; `script` is the file whose line is named."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).name == Path(script).name]
    is_exit = isinstance(error, SystemExit)
    failure = Failure(
        rank=int(os.environ["RANK"]),
        error=str(error) if is_exit else f"{type(error).__name__}: {error}".strip(),
        place=f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own and not is_exit else "",
        traceback="".join(traceback.format_exception(error)),
        at=time.time(),
    )
    _write(f"failure{failure.rank}.json", json.dumps(asdict(failure)))


def report_exits(failures: dict[int, Failure]) -> None:
    """Leave behind what the agent saw: ranks whose process ended badly, whether or not they could say so themselves."""
    _write("exits.json", json.dumps([asdict(failure) for failure in failures.values()]))


def read_results(folder: Path, num_ranks: int) -> tuple[Any, ...]:
    """The result of each rank in order, None for one that reported nothing."""
    return tuple(_read(folder / f"result{rank}.json") for rank in range(num_ranks))


def read_failures(folder: Path, num_ranks: int) -> list[Failure]:
    """The ranks that failed, the cause first: a killed process, then the others by time."""
    told = [_read(folder / f"failure{rank}.json") for rank in range(num_ranks)]
    failures = sorted((Failure(**fields) for fields in told if fields), key=lambda failure: failure.at)
    known = {failure.rank for failure in failures}
    exits = [Failure(**fields) for fields in _read(folder / "exits.json") or []]
    silent = [failure for failure in exits if failure.rank not in known]
    # Ranks that the agent ends after the first failure get SIGTERM; any other signal came from elsewhere.
    killed = [failure for failure in silent if "SIG" in failure.error and "SIGTERM" not in failure.error]
    return killed + failures + [failure for failure in silent if failure not in killed]


def _write(name: str, text: str) -> None:
    folder = Path(os.environ[FOLDER])
    beside = folder / f".{name}"
    beside.write_text(text, "utf8")
    os.replace(beside, folder / name)


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf8")) if path.exists() else None
