"""The pinned requirements: exact, complete, each once, and fit for every machine the book is built on."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hwlessons.publish.paths import Project

FILES = ("requirements.txt", "requirements-lessons.txt", "requirements-torch.txt")
NOT_PINNED = {"pip", "hwlessons"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _lines(project: Project, name: str) -> list[str]:
    text = (project.root / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def pins(project: Project) -> list[Requirement]:
    """Every pin of the three files."""
    return [Requirement(line) for name in FILES for line in _lines(project, name) if not line.startswith("-r")]


def test_one_file_includes_the_others(project: Project) -> None:
    included = [line for line in _lines(project, FILES[0]) if line.startswith("-r")]
    assert sorted(included) == sorted(f"-r {name}" for name in FILES[1:])


def test_torch_is_pinned_in_its_own_file(project: Project) -> None:
    assert "torch==2.13.0" in _lines(project, "requirements-torch.txt")


def test_every_pin_is_exact_and_there_once(pins: list[Requirement]) -> None:
    assert [str(pin) for pin in pins if not re.fullmatch(r"==[\w.]+", str(pin.specifier))] == []
    names = [_normal(pin.name) for pin in pins]
    assert [name for name in names if names.count(name) > 1] == []


def test_no_pin_belongs_to_one_build_of_torch(pins: list[Requirement]) -> None:
    assert [pin.name for pin in pins if pin.name.startswith(("nvidia", "triton", "cuda"))] == []


def test_what_is_installed_is_what_is_pinned(pins: list[Requirement], project: Project, in_ci: bool) -> None:
    """In the environment that make lays out: every pin, and in CI nothing else."""
    if (project.root / ".venv").resolve() != Path(sys.prefix).resolve():
        pytest.skip(f"this Python ({sys.prefix}) is not the book's own .venv")
    wanted = {_normal(pin.name): str(pin.specifier)[2:] for pin in pins if not pin.marker or pin.marker.evaluate()}
    found = {_normal(found.metadata["Name"]): found.version.split("+")[0] for found in metadata.distributions()}
    assert {name: found.get(name) for name in wanted} == wanted
    unpinned = set(found) - set(wanted) - NOT_PINNED
    assert not in_ci or not {name for name in unpinned if not name.startswith(("nvidia", "triton", "cuda"))}


def test_what_the_package_asks_for_admits_the_pins(pins: list[Requirement], project: Project) -> None:
    import tomllib

    asked = tomllib.loads((project.root / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*asked["dependencies"], *asked["optional-dependencies"]["book"], *asked["optional-dependencies"]["test"]]
    versions = {_normal(pin.name): str(pin.specifier)[2:] for pin in pins}
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(versions[_normal(requirement.name)], prereleases=True), str(requirement)
