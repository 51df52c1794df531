"""HTML that is readable anywhere: a theme's style improves it, and nothing depends on one.

Outputs bring almost no style of their own: text in the page's colour on a transparent ground, so that light and
dark pages work, and wide content scrolls inside its own box. `static/show.css` refines it on the book's pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

SCROLL = "overflow-x:auto"


def element(name: str, content: str, **attributes: str | None) -> str:
    """An HTML element: the content is HTML already, the attributes are escaped; `class_` and `aria_label` work."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>"


@dataclass(frozen=True)
class Grid:
    """A table as text: its column names, rows of cells, and for each column whether it holds numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]

    def html(self, caption: str, caption_text: str) -> str:
        """A table with a caption, headers with scope, the first column as row headers, in a box that scrolls.

        Args:
            caption: HTML.
            caption_text: the same as text; it labels the scrolling box for screen readers.
        """
        aligned = ["text-align:right" if numeric else "text-align:left" for numeric in self.numeric]
        head = "".join(
            element("th", escape(name), scope="col", style=style)
            for name, style in zip(self.columns, aligned, strict=True)
        )
        body = "".join(element("tr", self._row_html(row, aligned)) for row in self.rows)
        table = element(
            "table",
            element("caption", caption, style="caption-side:top;text-align:left;color:inherit")
            + element("thead", element("tr", head))
            + element("tbody", body),
            class_="hwl-table",
            style="font-variant-numeric:tabular-nums;margin:0",
        )
        return element(
            "div", table, class_="hwl-scroll", style=SCROLL, tabindex="0", role="group", aria_label=caption_text
        )

    def _row_html(self, row: Sequence[str], aligned: Sequence[str]) -> str:
        first = element("th", escape(row[0]), scope="row", style=f"{aligned[0]};min-width:6em")
        return first + "".join(
            element("td", unbroken(cell) if numeric else escape(cell), style=style)
            for cell, numeric, style in zip(row[1:], self.numeric[1:], aligned[1:], strict=True)
        )

    def text(self, caption: str) -> str:
        """The table in columns of fixed width, below its caption."""
        lines = [list(self.columns), *[list(row) for row in self.rows]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        written = [self._line(line, widths) for line in lines]
        return "\n".join([caption, written[0], "  ".join("─" * width for width in widths), *written[1:]])

    def _line(self, cells: Iterable[str], widths: Sequence[int]) -> str:
        padded = [
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(cells, widths, self.numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()


def label_list(pairs: Sequence[tuple[str, str]]) -> str:
    """Labels with their values (HTML) side by side, in columns of equal width that wrap where the page is narrow."""
    items = "".join(
        element(
            "div",
            element("dt", escape(label), style="font-weight:normal;font-size:0.85em;margin:0;padding:0")
            + element("dd", value, style="margin:0;padding:0"),
        )
        for label, value in pairs
    )
    style = "display:grid;grid-template-columns:repeat(auto-fill,minmax(9em,1fr));gap:0.3em 1em;margin:0.2em 0 0"
    return element("dl", items, class_="hwl-labels", style=f"{style};font-variant-numeric:tabular-nums")


def verdict_box(heading: str, content: str, *, colour: str, class_: str, label: str) -> str:
    """A heading and its content (HTML) beside a bar whose colour repeats what the words say."""
    style = f"border-inline-start:0.25em solid {colour};padding:0.2em 0 0.2em 0.8em;margin:0.5em 0"
    return element("div", element("div", heading) + content, class_=class_, role="group", aria_label=label, style=style)


def unbroken(quantity: str) -> str:
    """A quantity (text) as HTML that wraps only before its second form: "9,600,000,000 B" stays together."""
    return escape(quantity).replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def where_html(where: str) -> str:
    """The part of a caption or heading that says where numbers come from."""
    return element("span", f"· {escape(where)}", class_="hwl-where", style="font-size:0.85em")
