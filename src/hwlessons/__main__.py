"""The command line: `python -m hwlessons …`, also installed as `hwlessons`.

It parses with the standard library, so that a GPU runner needs nothing for it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hwlessons.publish.paths import Project, PublishError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hwlessons", description="Runs the lessons of the book and builds its site.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run lessons (those whose last run is still good are not run again)")
    run.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a notebook's name; default: all")
    run.add_argument("--solutions", action="store_true", help="with all exercises solved and all wrong answers tried")
    run.add_argument("--force", action="store_true", help="run them even where nothing changed")
    run.set_defaults(call=_run)

    book = commands.add_parser("book", help="run what must run and build the site into _build/html")
    book.set_defaults(call=_book)

    gpu = commands.add_parser("gpu", help="run lessons on this machine's GPU and write one file below book/evidence")
    gpu.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a notebook's name; default: all")
    gpu.set_defaults(call=_gpu)

    evidence = commands.add_parser("evidence", help="write the evidence of the lessons' last runs")
    evidence.add_argument("--output", type=Path, metavar="FILE", help="where to write it; default: standard output")
    evidence.set_defaults(call=_evidence)
    return parser


def _run(project: Project, given: argparse.Namespace) -> None:
    from hwlessons.publish import run, solutions, store

    lessons = project.select(given.lessons)
    records = run.run_lessons(project, lessons, solutions=given.solutions, force=given.force)
    if not given.solutions:
        return
    problems = []
    for record in records:
        executed = store.read_notebook(store.executed_path(project, record.lesson_id, store.SOLUTIONS))
        problems += [f"lesson {record.lesson_id}: {problem}" for problem in solutions.exercise_problems(executed)]
    if problems:
        raise PublishError("\n".join(problems))


def _book(project: Project, given: argparse.Namespace) -> None:
    from hwlessons.publish.site import build_book

    build_book(project)


def _gpu(project: Project, given: argparse.Namespace) -> None:
    from hwlessons.publish.runner import check_runner

    check_runner()
    from hwlessons.publish.gpu import record_run  # imports what was checked for

    print(f"the evidence of this run: {record_run(project, project.select(given.lessons))}")


def _evidence(project: Project, given: argparse.Namespace) -> None:
    from hwlessons.publish import collect, store

    records = [store.load_record(project, path.stem) for path in project.lessons()]
    text = collect.collect(project, [record for record in records if record is not None]).dumps()
    if given.output is None:
        sys.stdout.write(text)
    else:
        store.write_text(given.output, text)


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Words after the program's name; default: those it was started with.

    Returns:
        The exit code: 0, 1 where something failed, 2 where the words make no sense, 130 where it was interrupted.
    """
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        given.call(Project.find(), given)
    except (PublishError, ValueError) as error:
        print(f"hwlessons: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hwlessons: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
