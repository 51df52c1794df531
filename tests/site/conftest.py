"""The built site in a real browser that reaches no other host."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hwlessons.publish.paths import Project
from hwlessons.show.widgets import WIDGETS

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
]  # fmt: skip
SETTLE_MILLISECONDS = 250
FACTS = {"device": "cpu", "device_name": "Sample CPU", "kernels": "cpu", "torch": "2.13.0", "python": "3.11"}
CELLS = {
    "title": "# Widgets\n\nA page that shows widgets.",
    "machine": f"from hwlessons import show\n\nshow.machine({FACTS})",
    "one": "show.NumberFormatExplorer()",
    "two": "show.NumberFormatExplorer(-3e8, 'e4m3', overflow='saturate')",
    "viewer": "show.PipelineScheduleViewer('interleaved')",
    "stepper": "show.StepStepper(2, 'every 2 blocks')",
    "calculator": "show.VramCalculator('gpt2-small', sequence=1024)",
}


@pytest.fixture(scope="session")
def html(project: Project, in_ci: bool) -> Path:
    """The built site's folder."""
    folder = Path(os.environ.get("HWLESSONS_SITE", project.html))
    if not (folder / "index.html").is_file():
        (pytest.fail if in_ci else pytest.skip)(f"no site in {folder}: run `make book` first")
    return folder.resolve()


@pytest.fixture(scope="session")
def browser(in_ci: bool) -> Iterator[Any]:
    """A headless Chromium."""
    found = next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), *BROWSERS))), None)
    if found is None:
        (pytest.fail if in_ci else pytest.skip)("no Chromium found: install it, or name it with CHROMIUM=/path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield running
        running.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing when a page is closed before it has everything."""


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], dict[str, str]]]:
    """Serves a folder; says where it is found over http and as files."""
    servers = []

    def start(folder: Path) -> dict[str, str]:
        server = _Server(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return {"http": f"http://localhost:{server.server_address[1]}", "file": folder.as_uri()}

    yield start
    for server in servers:
        server.shutdown()


@pytest.fixture(scope="session")
def addresses(html: Path, serve: Callable[[Path], dict[str, str]]) -> dict[str, str]:
    """Where the site is found over http and as files."""
    return serve(html)


@dataclass
class Visit:
    """An open page, and what went wrong on it."""

    page: Any
    faults: list[str] = field(default_factory=list)


@pytest.fixture
def visit(open_page: Callable[..., Visit], addresses: dict[str, str]) -> Callable[..., Visit]:
    """Opens a page of the site and waits until it is quiet."""
    return lambda name, scheme="http", **options: open_page(addresses[scheme], name, **options)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a page below an address and waits until it is quiet."""
    opened = []

    def go(base: str, name: str, **options: Any) -> Visit:
        page = browser.new_page(**options)
        opened.append(page)
        there = Visit(page)
        page.on("pageerror", lambda error: there.faults.append(f"page error: {error}"))
        page.on("console", lambda m: there.faults.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("requestfailed", lambda request: there.faults.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((base, "data:", "blob:"))
                else there.faults.append(f"elsewhere: {request.url}")
            ),
        )
        page.goto(f"{base}/{name}", wait_until="load")
        if name == "index.html":  # sends its reader on
            page.wait_for_url("**/book/index.html")
        page.wait_for_timeout(SETTLE_MILLISECONDS)
        return there

    yield go
    for page in opened:
        page.close()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Path:
    """A built book: a lesson with widgets, a page with all of them as they begin, and one with none."""
    root = tmp_path_factory.mktemp("a book")
    favicon = "src/hwlessons/publish/static/favicon.svg"
    for folder in ("book", "notebooks", Path(favicon).parent):
        (root / folder).mkdir(parents=True)
    for name in ("_config.yml", favicon):
        shutil.copy(project.root / name, root / name)
    (root / "book" / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n- file: notebooks/01_widgets\n- file: book/all\n"
    )
    (root / "book" / "index.md").write_text(
        "# No widgets\n\nA page without widgets, which must load no script of theirs.\n"
    )
    directives = "".join(f"\n```{{hwl-widget}} {name}\n```\n" for name in WIDGETS)
    (root / "book" / "all.md").write_text(f"# All widgets\n\nEach as it begins, by the directive.\n{directives}")
    cells = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for name, source in CELLS.items()
    ]
    cells[0] = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": CELLS["title"]}
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    (root / "notebooks" / "01_widgets.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "hwlessons", "book"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Project(root).html


@pytest.fixture(scope="session")
def bases(scratch: Path, serve: Callable[[Path], dict[str, str]]) -> dict[str, str]:
    return serve(scratch)
