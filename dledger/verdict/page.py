"""The look of a report: one HTML page that stands alone. Pure.

No script runs, nothing is fetched, and a policy in the page says so to the browser: what a page
shows of messages, topics and errors came from outside, and stays text. Whoever makes markup of a
value escapes it, here and nowhere else: functions that take text escape it, those that take parts
of a page say so.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Final, NewType

Markup = NewType("Markup", str)
"""A part of a page. Everything else is text."""

NOTHING: Final = Markup("")
#: Control characters, and marks that turn the direction of text round: they would hide or disguise.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff]"
)


def text(value: object) -> Markup:
    """A value as text on a page; what can't be seen is spelled out."""
    seen = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", str(value))
    return Markup(escape(seen))


def joined(parts: Iterable[Markup], between: str = "") -> Markup:
    """Parts, one after the other."""
    return Markup(between.join(parts))


def tag(name: str, *inner: Markup, **attributes: str) -> Markup:
    """An HTML element as markup. `class_` is the attribute class; attributes are text."""
    shown = "".join(f' {key.rstrip("_")}="{text(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{shown}>{''.join(inner)}</{name}>")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Markup]],
    *,
    style: str = "",
    numbers: Container[int] = (),
) -> Markup:
    """A table that scrolls by itself where it is too wide. `numbers`: the columns that have some,
    from 0 on."""
    aligned = ["number" if k in numbers else "" for k in range(len(head))]

    def cell(name: str, inner: Markup, kind: str) -> Markup:
        return tag(name, inner, class_=kind) if kind else tag(name, inner)

    top = joined(cell("th", text(name), kind) for name, kind in zip(head, aligned, strict=True))
    body = joined(
        tag("tr", *(cell("td", inner, kind) for inner, kind in zip(row, aligned, strict=True)))
        for row in rows
    )
    whole = tag("table", tag("thead", tag("tr", top)) if any(head) else NOTHING, tag("tbody", body))
    return tag("div", whole, class_=f"scroll {style}".strip())


def tiles(facts: Iterable[tuple[str, str, bool]]) -> Markup:
    """The few numbers that people ask for first: value, name, whether it is as it should be."""
    return tag(
        "section",
        *(
            tag("div", tag("b", text(value)), tag("span", text(name)), class_="" if good else "bad")
            for value, name, good in facts
        ),
        class_="tiles",
    )


def card(title: str, *inner: Markup, id_: str = "", style: str = "") -> Markup:
    """A part of a page under a heading of its own."""
    named = {"id": id_} if id_ else {}
    return tag("section", tag("h2", text(title)), *inner, class_=f"card {style}".strip(), **named)


def command(line: str) -> Markup:
    """A line to be typed."""
    return tag("pre", text(line), class_="command")


def document(title: str, heading: str, summary: Markup, body: Markup, *, good: bool) -> str:
    """The page: the verdict first, then the rest."""
    folder = files(__package__)
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        style=folder.joinpath("page.css").read_text(encoding="utf-8"),
        title=text(title),
        heading=text(heading),
        state="good" if good else "bad",
        summary=summary,
        body=body,
    )
