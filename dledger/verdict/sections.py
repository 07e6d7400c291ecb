"""A verdict's parts of a page: the properties, and a section for each violation. Pure.

Each violation has an address of its own on the page (#p1-3: the third of property 1), so that it
can be pointed at: what it says, the history's lines about it, what each replica has at its place,
byte by byte, and the command that does it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from dledger.limits import SENTENCE_CHARACTERS_MAX, VIOLATIONS_OPEN_MAX
from dledger.verdict.bytes_told import dump
from dledger.verdict.form import Exhibit, Held, Property, Violation
from dledger.verdict.page import NOTHING, Markup, card, command, joined, table, tag, text

_NS_PER_S: Final = 1_000_000_000


def judged(properties: Sequence[Property]) -> Markup:
    """The table of properties; one that is violated leads to its violations."""
    return table(
        ("", "Property", "Checked", "Verdict"),
        [
            (
                text(each.number),
                joined([text(each.title), _unjudged(each)]),
                text("" if each.unjudged else f"{each.checked:,}"),
                _mark(each),
            )
            for each in properties
        ],
        style="properties",
        numbers=(0, 2),
    )


def _unjudged(each: Property) -> Markup:
    return tag("small", text(each.unjudged)) if each.unjudged else NOTHING


def _mark(each: Property) -> Markup:
    if not each.holds:
        found = text(f"{max(each.count, len(each.violations)):,} found")
        return tag("a", found, class_="mark bad", href=f"#p{each.number}")
    style = "mark good" if each.word == "holds" else "mark none"
    return tag("span", text(each.word), class_=style)


def worst(properties: Sequence[Property]) -> Markup:
    """The violated properties, in a list that leads to the first violation of each."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("a", text(f"{each.number}. {each.title}"), href=f"#p{each.number}"),
                text(f": {_first(each)}"),
            )
            for each in properties
            if not each.holds
        ),
        class_="worst",
    )


def _first(each: Property) -> str:
    many = max(each.count, len(each.violations))
    more = f" (and {many - 1:,} more)" if many > 1 else ""
    sentence = _sentence(each.violations[0]) if each.violations else "violated"
    return (
        sentence
        if len(sentence) <= SENTENCE_CHARACTERS_MAX
        else f"{sentence[:SENTENCE_CHARACTERS_MAX]}..."
    ) + more


def violations(properties: Sequence[Property], replay: str) -> Markup:
    """All violations that are spelled out, each with its evidence."""
    return joined(_of_property(each, replay) for each in properties if not each.holds)


def _of_property(each: Property, replay: str) -> Markup:
    shown = [
        _violation(
            violation, f"p{each.number}-{number}", replay, is_open=number <= VIOLATIONS_OPEN_MAX
        )
        for number, violation in enumerate(each.violations, start=1)
        if violation.exhibit is not None
    ]
    rest = [violation for violation in each.violations if violation.exhibit is None]
    many = max(each.count, len(each.violations))
    hidden = many - len(each.violations)
    named = ", ".join(f"{count:,} {kind}" for kind, count in each.kinds.items())
    kinds = f": {named}." if named else "."
    return card(
        f"{each.number}. {each.title}",
        tag("p", text(f"{many:,} violations of {each.checked:,} checked{kinds}"), class_="soft"),
        *shown,
        _others(rest),
        tag("p", text(f"... and {hidden:,} more."), class_="soft") if hidden else NOTHING,
        id_=f"p{each.number}",
        style="violated",
    )


def _others(rest: Sequence[Violation]) -> Markup:
    if not rest:
        return NOTHING
    rows = [
        (text(each.what), text(each.message_id or ""), text(_where(each)), text(each.detail or ""))
        for each in rest
    ]
    return table(("What", "Message", "Where", "Detail"), rows, style="small")


def _violation(violation: Violation, anchor: str, replay: str, *, is_open: bool) -> Markup:
    exhibit = violation.exhibit or Exhibit()
    shown = [
        tag("p", text(_where(violation)), class_="soft"),
        tag("p", text(violation.detail or "")),
        _lines(exhibit),
        _replicas(exhibit.held),
        _bytes(exhibit.held, is_open=is_open),
        tag("p", text("Run it again:"), class_="soft") if replay else NOTHING,
        command(replay) if replay else NOTHING,
    ]
    title = [
        tag("a", text(f"#{anchor}"), href=f"#{anchor}", class_="anchor"),
        tag("span", text(violation.what), class_="what"),
        tag("b", text(f" {violation.message_id or violation.replica or ''}")),
    ]
    opened = {"open": ""} if is_open else {}
    whole = tag("details", tag("summary", *title), *shown, class_="one", **opened)
    return tag("article", whole, id=anchor)


def _sentence(violation: Violation) -> str:
    words = (violation.what, violation.message_id, violation.detail)
    return ", ".join(word for word in words if word)


def _where(violation: Violation) -> str:
    named = "/".join(part for part in (violation.broker, violation.replica) if part)
    queue = f"{violation.topic}/{violation.queue_id}" if violation.queue_id is not None else ""
    if queue and violation.queue_offset is not None:
        queue += f" offset {violation.queue_offset}"
    positions = ", ".join(map(str, violation.positions or ()))
    at = f"position {positions}" if positions else ""
    return " · ".join(part for part in (named, queue, at) if part)


def _lines(exhibit: Exhibit) -> Markup:
    """The history's lines, with the time since the first of them."""
    if not exhibit.lines:
        return NOTHING
    times = [_time_of(line) for line in exhibit.lines]
    start = next((time for time in times if time is not None), 0)
    rows = [
        (
            text("" if time is None else f"+{(time - start) / _NS_PER_S:.6f} s"),
            tag("code", text(line)),
        )
        for line, time in zip(exhibit.lines, times, strict=True)
    ]
    more = exhibit.lines_hidden
    return joined(
        [
            tag("h4", text("What the history says")),
            table(("", ""), rows, style="lines", numbers=(0,)),
            tag("p", text(f"... and {more:,} lines more."), class_="soft") if more else NOTHING,
        ]
    )


def _time_of(line: str) -> int | None:
    try:
        time = json.loads(line)["t"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    # No clock comes to more, and no float holds all that a line may say.
    return time if isinstance(time, int) and abs(time) < 2**63 else None


def _replicas(held: Sequence[Held]) -> Markup:
    if not held:
        return NOTHING
    rows = [
        (
            text(each.replica),
            text(each.position),
            text(each.what),
            text(each.entry.get("index", "")),
            text(each.entry.get("term", "")),
            text(each.entry.get("chain CRC", "")),
            text(each.end),
        )
        for each in held
    ]
    head = ("Replica", "Position", "What is there", "Index", "Term", "Chain CRC", "Log ends")
    return joined(
        [tag("h4", text("What the replicas have")), table(head, rows, numbers=(1, 3, 4, 6))]
    )


def _bytes(held: Sequence[Held], *, is_open: bool) -> Markup:
    """The bytes; replicas that have the very same at a place share one picture."""
    alike: dict[tuple[int, str, str], list[Held]] = {}
    for each in held:
        if each.data:
            alike.setdefault((each.data_at, each.data, each.what), []).append(each)
    opened = {"open": ""} if is_open else {}
    return joined(
        tag(
            "details",
            tag("summary", text(f"{', '.join(each.replica for each in same)}: {same[0].what}")),
            _fields(same[0]),
            tag("pre", text(_dumped(same[0])), class_="bytes"),
            **opened,
        )
        for same in alike.values()
    )


def _fields(held: Held) -> Markup:
    fields = [*(("entry " + name, value) for name, value in held.entry.items())]
    fields += held.record.items()
    if not fields:
        return NOTHING
    pairs = [joined([tag("dt", text(name)), tag("dd", text(value))]) for name, value in fields]
    return tag("dl", *(tag("div", pair) for pair in pairs))


def _dumped(held: Held) -> str:
    data = bytes.fromhex(held.data)
    more = held.data_bytes - len(data)
    return dump(data, held.data_at) + (f"\n... and {more:,} bytes more" if more > 0 else "")
