"""From matplotlib's figure to a small SVG for a page: in the page's font and text colour, and always the same text."""

from __future__ import annotations

import hashlib
import io
import re
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from hwlessons.show.figures.style import INK

MOST_BYTES = 60_000

_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"-?\d+\.\d{2,}")
_FAMILY = re.compile(r"font-family:[^;]*;?")
_SHORTHAND = re.compile(r"font: (?:(bold|\d00) )?([\d.]+px) [^;]*;?")


def render(drawn: Figure, salt: str) -> str:
    """An `<svg>` element: no date, no random names; text stays text; what was drawn in INK takes the page's colour.

    Args:
        drawn: the figure.
        salt: keeps the names inside apart from those of other figures on the page.

    Raises:
        ValueError: if it is larger than MOST_BYTES; a page with such figures would be slow.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        drawn.savefig(buffer, format="svg")
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            # matplotlib's style sheet would apply to the whole page
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    prefix = "f" + hashlib.sha256(salt.encode()).hexdigest()[:8]
    _rename_references(root, prefix)
    for node in root.iter():
        _simplify(node)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    svg = _written(root)
    if len(svg.encode()) > MOST_BYTES:
        raise ValueError(
            f"the figure has {len(svg.encode()):,} bytes of SVG, more than {MOST_BYTES:,}; plot fewer points"
        )
    return svg


def _rename_references(root: ElementTree.Element, prefix: str) -> None:
    """Drops names that nothing refers to, and makes the others unique on a page."""
    used = [name for node in root.iter() for value in node.attrib.values() for name in _REFERENCE.findall(value)]
    used += [node.attrib[_HREF][1:] for node in root.iter() if _HREF in node.attrib]
    short = {name: f"{prefix}-{number}" for number, name in enumerate(dict.fromkeys(used))}
    for node in root.iter():
        name = node.attrib.pop("id", None)
        if name in short:
            node.attrib["id"] = short[name]
        if _HREF in node.attrib:
            node.attrib["href"] = "#" + short[node.attrib.pop(_HREF)[1:]]
        for key, value in node.attrib.items():
            if "url(#" in value:
                node.attrib[key] = _REFERENCE.sub(lambda found: f"url(#{short[found[1]]})", value)


def _simplify(node: ElementTree.Element) -> None:
    node.tail = None
    if node.text is not None and not node.text.strip():
        node.text = None
    for key, value in list(node.attrib.items()):
        value = _DECIMALS.sub(_one_decimal, value) if key in ("d", "x", "y", "transform", "points") else value
        if key == "style":
            value = _FAMILY.sub("", _SHORTHAND.sub(_without_family, value)).replace("; ", ";").replace(": ", ":")
        node.attrib[key] = value.replace(INK, "currentColor")
    if node.tag.endswith("path") and "d" in node.attrib:
        node.attrib["d"] = _short_path(node.attrib["d"])


def _one_decimal(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _without_family(found: re.Match[str]) -> str:
    return (f"font-weight:{found[1]};" if found[1] else "") + f"font-size:{found[2]};"


def _short_path(path: str) -> str:
    """Writes level and upright lines as H and V, and leaves out points that do not move."""
    parts: list[str] = []
    here: tuple[str, str] | None = None
    for command in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        letter, numbers = command[0], command[1].split()
        if letter == "L" and len(numbers) == 2 and here is not None:
            x, y = numbers
            if (x, y) == here:
                continue
            parts.append(f"V{y}" if x == here[0] else f"H{x}" if y == here[1] else f"L{x} {y}")
        else:
            parts.append(f"{letter}{' '.join(numbers)}")
        here = (numbers[-2], numbers[-1]) if len(numbers) >= 2 else None
    return "".join(parts)


def _written(root: ElementTree.Element) -> str:
    def write(node: Any) -> str:
        name = node.tag.rpartition("}")[2]
        attributes = "".join(f' {key}="{_attribute(value)}"' for key, value in node.attrib.items() if value)
        inner = (_text(node.text) if node.text else "") + "".join(map(write, node))
        return f"<{name}{attributes}>{inner}</{name}>" if inner else f"<{name}{attributes}/>"

    return write(root)


def _text(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(value: str) -> str:
    return _text(value).replace('"', "&quot;").strip()
