"""How long the book takes: every lesson, the pages, and a build after which nothing has changed.

It runs every lesson anew, so it takes as long as a cold build. Limits: 30 s and 2 GB for a lesson, 60 s for the whole
build with the first two lessons, 9 minutes with all fifteen, 3 s unchanged.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from hwlessons.publish import store
from hwlessons.publish.paths import Project

LESSON_SECONDS, LESSON_BYTES, UNCHANGED_SECONDS = 30, 2 * 10**9, 3


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "hwlessons", *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    project = Project.find(Path(__file__).parent)
    shutil.rmtree(project.root / "_build", ignore_errors=True)
    cold, unchanged = seconds("book"), seconds("book")
    over = []
    print(f"{'lesson':32}{'seconds':>9}{'MB':>7}")
    for lesson in project.lessons():
        record = store.load_record(project, lesson.stem)
        assert record is not None
        print(f"{lesson.stem:32}{record.seconds:9.1f}{record.peak_memory_bytes / 10**6:7.0f}")
        if record.seconds > LESSON_SECONDS or record.peak_memory_bytes > LESSON_BYTES:
            over.append(lesson.stem)
    print(f"cold build {cold:.1f} s, unchanged {unchanged:.1f} s")
    if unchanged > UNCHANGED_SECONDS:
        over.append("the unchanged build")
    if over:
        sys.exit(f"over the limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
