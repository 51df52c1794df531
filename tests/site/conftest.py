"""The built site in a real browser that reaches no other host."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hwlessons.publish.paths import Project

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
]  # fmt: skip
SETTLE_MILLISECONDS = 250


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
