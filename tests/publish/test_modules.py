from __future__ import annotations

import ast
from pathlib import Path

import grimp
import pytest

from hwlessons.publish import modules


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of the same name with one chain of imports and one data file."""
    folder = tmp_path / "hwlessons"
    (folder / "facts" / "data").mkdir(parents=True)
    (folder / "lab").mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "units.py").write_text("")
    (folder / "facts" / "__init__.py").write_text("from ..units import GIB")
    (folder / "facts" / "shapes.py").write_text("def late():\n    from hwlessons.lab import worker")
    (folder / "facts" / "data" / "shapes.toml").write_text("x = 1")
    (folder / "lab" / "__init__.py").write_text("")
    (folder / "lab" / "worker.py").write_text("COMMAND = 'hwlessons.lab.other:main'")
    (folder / "lab" / "other.py").write_text("")
    return folder


def test_imports_are_followed_wherever_they_stand(package: Path) -> None:
    reached = modules.reached_modules(["hwlessons.facts.shapes.load"], package)
    assert set(reached) == {
        "hwlessons",
        "hwlessons.facts",
        "hwlessons.facts.shapes",
        "hwlessons.units",
        "hwlessons.lab",
        "hwlessons.lab.worker",
        "hwlessons.lab.other",
    }


def test_relative_imports_are_resolved_as_python_does() -> None:
    names = list(modules.imported_names(ast.parse("from . import a\nfrom ..b import c"), "hwlessons.x.y"))
    assert {"hwlessons.x.a", "hwlessons.b.c"} <= set(names)
    names = list(modules.imported_names(ast.parse("from . import a"), "hwlessons.x", is_package=True))
    assert "hwlessons.x.a" in names


@pytest.mark.parametrize(
    ("changed", "counts"), [("lab/other.py", True), ("facts/data/shapes.toml", True), ("lab/new.py", False)]
)
def test_the_hash_follows_what_is_reached(package: Path, changed: str, counts: bool) -> None:
    before = modules.package_hash(["from hwlessons.facts import shapes"], package)
    (package / changed).write_text("y = 2")
    modules.module_file.cache_clear()
    assert (modules.package_hash(["from hwlessons.facts import shapes"], package) != before) == counts


def test_a_cell_that_cannot_be_parsed_reaches_everything(package: Path) -> None:
    before = modules.package_hash(["%matplotlib inline"], package)
    (package / "lab" / "other.py").write_text("y = 2")
    assert modules.package_hash(["%matplotlib inline"], package) != before


def test_the_walker_reaches_what_an_import_graph_reaches() -> None:
    graph = grimp.build_graph("hwlessons")
    for module in sorted(graph.modules):
        upstream = graph.find_upstream_modules(module)
        missing = upstream - set(modules.reached_modules([module]))
        assert not missing, (module, missing)
