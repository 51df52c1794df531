"""Takes from the built site what no reader needs, and brings the maths renderer that the site serves itself."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

# The theme draws its icons twice: by this script (1.5 MB, most of a page) and by CSS from the same web font.
_ICON_SCRIPT = re.compile(
    r"\s*<!-- So that users can add custom icons -->\s*<script [^>]*scripts/fontawesome\.js[^>]*></script>"
)
_UNUSED = ("scripts/fontawesome.js*", "scripts/*.map", "styles/*.map")
_MATHJAX = ("tex-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions", "a11y/assistive-mml.js")


def trim_site(html: Path) -> None:
    """Drops the theme's icon script and source maps from the pages below `html`; a second time changes nothing."""
    for page in html.rglob("*.html"):
        text = page.read_text("utf-8")
        trimmed = _ICON_SCRIPT.sub("", text)
        if trimmed != text:
            page.write_text(trimmed, "utf-8", newline="\n")
    for pattern in _UNUSED:
        for path in (html / "_static").glob(pattern):
            path.unlink()


def copy_mathjax(static: Path) -> None:
    """Copies the part of MathJax that pages use (about 2 MB of 24) from its package into the site.

    Raises:
        ModuleNotFoundError: The package sphinx-mathjax-offline is not installed.
    """
    spec = find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("sphinx-mathjax-offline is not installed: pip install -r requirements.txt")
    source = Path(spec.origin).parent / "static" / "mathjax"
    for name in _MATHJAX:
        target = static / "mathjax" / name
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (source / name).is_dir() else shutil.copyfile)(source / name, target)
