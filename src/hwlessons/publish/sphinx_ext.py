"""The book's Sphinx extension: hands Sphinx the executed lessons, draws the evidence page, and trims the theme.

Sphinx never runs a notebook (`execute_notebooks: off`): what it reads for a lesson is the executed notebook under
`_build/lessons`, with the present prose.
"""

from __future__ import annotations

import json
import posixpath
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from hwlessons.publish import evidence, store, tables, trim
from hwlessons.publish.paths import LESSON_NAME, Project
from hwlessons.show.widgets import WIDGETS, scripts

STATIC = Path(__file__).parent / "static"
DESCRIPTION_LENGTH = 160


def read_executed(app: Sphinx, docname: str, source: list[str]) -> None:
    """Swaps a lesson's source for its executed notebook.

    Raises:
        ExtensionError: The lesson has not been run on its present cells.
    """
    name = posixpath.basename(docname)
    if not LESSON_NAME.fullmatch(name) or posixpath.dirname(docname) != "notebooks":
        return
    path = store.executed_path(Project(Path(app.srcdir)), name)
    notebook = store.read_notebook(Path(app.env.doc2path(docname)))
    merged = store.with_outputs(notebook, store.read_notebook(path)) if path.is_file() else None
    if merged is None:
        raise ExtensionError(
            f"lesson {name} has not been run on its present cells: build the book with `hwlessons book`"
        )
    app.env.note_dependency(str(path))
    source[0] = json.dumps(merged)


class EvidenceTables(SphinxDirective):
    """`{hwl-evidence} summary | claims | times | recorded`: tables of the evidence page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the table that is asked for; reads the page again at every build, as evidence comes and goes."""
        self.env.note_reread()
        project = Project(Path(self.env.srcdir))
        what = self.arguments[0]
        if what == "recorded":
            files = sorted(project.recorded_runs.glob("*.json"))
            html = tables.recorded_runs([(file.name, evidence.load(file)) for file in files], self._link)
        elif what in {"summary", "claims", "times"}:
            run = evidence.load(project.evidence)
            html = tables.summary(run) if what == "summary" else getattr(tables, what)(run, self._link)
        else:
            raise self.error(f"hwl-evidence shows summary, claims, times or recorded, not {what!r}")
        return [nodes.raw("", html, format="html")]

    def _link(self, lesson_id: str) -> str:
        name = f"Lesson {lesson_id[:2]}"
        path = Project(Path(self.env.srcdir)).notebooks / f"{lesson_id}.ipynb"
        if not path.is_file():  # recorded before the lesson was renamed
            return escape(f"{name}, {lesson_id[3:].replace('_', ' ')}")
        target = posixpath.relpath(f"notebooks/{lesson_id}.html", posixpath.dirname(self.env.docname) or ".")
        return f'<a href="{escape(target)}">{name}</a>, {escape(store.title(store.read_notebook(path)))}'


class WidgetOnPage(SphinxDirective):
    """`{hwl-widget} pipeline-schedule-viewer`: a widget as it begins, named as its element without `hwl-`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the widget's element."""
        name = self.arguments[0]
        if name not in WIDGETS:
            raise self.error(f"hwl-widget shows {', '.join(WIDGETS)}, not {name!r}")
        return [nodes.raw("", WIDGETS[name]().html(), format="html")]


def describe_page(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Gives a page its meta description: its first paragraph, unless the page brings its own."""
    if doctree is None or 'name="description"' in context.get("metatags", ""):
        return
    texts = (" ".join(paragraph.astext().split()) for paragraph in doctree.findall(nodes.paragraph))
    text = next((text for text in texts if len(text) > 30), app.config.html_title)
    if len(text) > DESCRIPTION_LENGTH:
        text = text[:DESCRIPTION_LENGTH].rsplit(" ", 1)[0] + " …"
    context["metatags"] = context.get("metatags", "") + f'\n<meta name="description" content="{escape(text)}" />'


def drop_unused_scripts(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Takes MathJax (260 KB compressed) from a page that has no formula."""
    if 'class="math' not in context.get("body", ""):
        scripts = context.get("script_files", [])
        scripts[:] = [script for script in scripts if "mathjax" not in str(getattr(script, "filename", script))]


def add_widgets(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Gives a page the scripts of the widgets that it shows, and their style; other pages load neither."""
    shown = scripts.scripts_of(context.get("body", ""))
    for script in shown:
        app.add_js_file(script.name, loading_method="defer")
    if shown:
        app.add_css_file(scripts.STYLE_NAME)


def add_static(app: Sphinx) -> None:
    """Puts the package's own style and the widgets' scripts among the site's files."""
    app.config.html_static_path.append(str(STATIC))
    if app.builder.format != "html":
        return
    for script in scripts.SCRIPTS:
        store.write_text(Path(app.outdir) / "_static" / script.name, script.classic)
    store.write_text(Path(app.outdir) / "_static" / scripts.STYLE_NAME, scripts.style())


def finish(app: Sphinx, error: Exception | None) -> None:
    """Trims the built pages and copies what maths needs."""
    if error is None and app.builder.format == "html":
        trim.trim_site(Path(app.outdir))
        trim.copy_mathjax(Path(app.outdir) / "_static")


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension."""
    app.add_directive("hwl-evidence", EvidenceTables)
    app.add_directive("hwl-widget", WidgetOnPage)
    app.connect("source-read", read_executed)
    app.connect("builder-inited", add_static)
    app.connect("html-page-context", describe_page)
    app.connect("html-page-context", drop_unused_scripts, priority=900)
    app.connect("html-page-context", add_widgets)
    app.connect("build-finished", finish)
    app.add_css_file("hwl.css")
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
