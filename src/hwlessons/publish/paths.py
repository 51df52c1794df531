"""Where things lie in a checkout of the book, and which lessons there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LESSON_NAME = re.compile(r"\d\d_\w+")


class PublishError(Exception):
    """Something stops the book from being made; the message alone is shown to the author."""


@dataclass(frozen=True)
class Project:
    """A checkout of the book.

    Attributes:
        root: The folder that holds `_config.yml`.
    """

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Project:
        """Returns the checkout around `start` (default: the current folder).

        Raises:
            PublishError: No folder above holds the book.
        """
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / "_config.yml").is_file() and (folder / "book" / "_toc.yml").is_file():
                return cls(folder)
        raise PublishError(f"{start} is not inside a checkout of the book (no _config.yml with book/_toc.yml above it)")

    @property
    def notebooks(self) -> Path:
        """The lessons as they are committed, without outputs."""
        return self.root / "notebooks"

    @property
    def recorded_runs(self) -> Path:
        """Evidence of earlier runs, committed."""
        return self.root / "book" / "evidence"

    @property
    def build(self) -> Path:
        """Everything that a build writes."""
        return self.root / "_build"

    @property
    def executed(self) -> Path:
        """Executed lessons and their run records."""
        return self.build / "lessons"

    @property
    def evidence(self) -> Path:
        """The evidence of this build, from which the evidence page is drawn."""
        return self.build / "evidence.json"

    @property
    def html(self) -> Path:
        """The built site."""
        return self.build / "html"

    def lessons(self) -> list[Path]:
        """Returns every lesson's notebook, in the order of the book."""
        return sorted(path for path in self.notebooks.glob("*.ipynb") if LESSON_NAME.fullmatch(path.stem))

    def select(self, names: list[str]) -> list[Path]:
        """Returns the lessons that `names` ask for, in the order of the book; all of them where `names` is empty.

        Args:
            names: Each a number (`5`: all its parts), a name (`05_vram_accounting`), or a notebook's path.

        Raises:
            PublishError: A name fits no lesson.
        """
        lessons = self.lessons()
        if not lessons:
            raise PublishError(
                f"no lessons found: {self.notebooks} holds no notebook named like 01_training_step.ipynb"
            )
        wanted = {path for name in names for path in self._named(name, lessons)}
        return [path for path in lessons if not names or path in wanted]

    @staticmethod
    def _named(name: str, lessons: list[Path]) -> list[Path]:
        stem = Path(name).name.removesuffix(".ipynb")
        number = f"{int(stem):02d}_" if stem.isdecimal() else None
        found = [path for path in lessons if stem == path.stem or (number and path.stem.startswith(number))]
        if not found:
            raise PublishError(f"no lesson {name!r}; there are {', '.join(path.stem for path in lessons)}")
        return found
