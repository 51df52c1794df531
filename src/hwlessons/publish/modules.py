"""Which modules of the package a piece of code reaches, read from its import statements.

The syntax tree is enough, so that a GPU runner needs no further package for it. Imports inside functions count; a
dotted name in a string on its own (`"hwlessons.parallel.worker"`, as handed to `python -m`) counts as well.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = "hwlessons"
PACKAGE_FOLDER = Path(__file__).resolve().parent.parent


@cache
def module_file(module: str, folder: Path = PACKAGE_FOLDER) -> Path | None:
    """Returns the file that defines `module` of the package, or None where there is no such module."""
    base = folder.joinpath(*module.split(".")[1:])
    candidates = (base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


def imported_names(tree: ast.AST, module: str = "", is_package: bool = False) -> Iterator[str]:
    """Yields dotted names below the package that `tree` imports; some may be functions rather than modules.

    Args:
        tree: The parsed source.
        module: Its own dotted name, against which relative imports are resolved.
        is_package: Whether `module` is a package (`__init__.py`).
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                base = ".".join([*parents, base]).rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(PACKAGE + "."):
            yield node.value.partition(":")[0]


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def reached_modules(names: Iterable[str], folder: Path = PACKAGE_FOLDER) -> dict[str, Path]:
    """Returns every module of the package that importing `names` reaches, itself included, with its file.

    Args:
        names: Dotted names; those outside the package are ignored.
        folder: The package's folder.
    """
    reached: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        for module in _with_parents(waiting.pop()):
            path = module_file(module, folder) if module.split(".")[0] == PACKAGE else None
            if path is None or module in reached:
                continue
            reached[module] = path
            waiting += imported_names(ast.parse(path.read_bytes()), module, path.name == "__init__.py")
    return reached


def package_hash(code: Iterable[str], folder: Path = PACKAGE_FOLDER) -> str:
    """Returns the SHA-256 of the modules that `code` reaches, with the data files beside them.

    Args:
        code: Sources, one a cell. A cell that Python alone cannot parse (a magic) makes the whole package count.
        folder: The package's folder.
    """
    names: set[str] = set()
    for source in code:
        try:
            names.update(imported_names(ast.parse(source)))
        except SyntaxError:
            names.update(all_modules(folder))
    reached = reached_modules(names, folder)
    packages = {path.parent for path in reached.values() if path.name == "__init__.py"}
    data = {path for package in packages for path in _data_files(package)}
    digest = hashlib.sha256()
    for path in sorted({*reached.values(), *data}):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def all_modules(folder: Path = PACKAGE_FOLDER) -> Iterator[str]:
    """Yields the dotted name of every module of the package."""
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join([PACKAGE, *(part for part in parts if part != "__init__")])


def _data_files(package: Path) -> Iterator[Path]:
    """Yields the data files of one package: those in it and in its folders that hold no Python."""
    for path in package.iterdir():
        if path.is_dir() and path.name != "__pycache__" and not any(path.glob("*.py")):
            yield from (file for file in path.rglob("*") if file.is_file())
        elif path.is_file() and path.suffix not in {".py", ".pyc"}:
            yield path
