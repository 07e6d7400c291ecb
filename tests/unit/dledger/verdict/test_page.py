"""A verdict's page and its XML, in which foreign text stays text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.verdict.bytes_told import dump
from dledger.verdict.form import Exhibit, Held, Property, Violation, headline
from dledger.verdict.junit import Case, cases, junit
from dledger.verdict.page import document, joined, text
from dledger.verdict.sections import judged, violations, worst

HOSTILE = "<script>alert('1')</script>\"&\x00\x1b[31m\u202egnp.exe\ud800"


def hostile(value: str) -> Property:
    """A violation whose every text is the same."""
    held = Held("n0", 7, value, 9, {value: value}, {"topic": value}, 7, b"\xff<b>".hex(), 4)
    line = f'{{"t":5,"id":"{value}"}}'
    shown = Violation(
        value, value, value, value, value, 1, 2, [3], value, Exhibit([line, value], 2, [held])
    )
    return Property(1, value, False, 5, [shown, Violation(value, detail=value)], 3)


def page_of(properties: list[Property], replay: str = "mqchaos replay") -> str:
    body = joined([worst(properties), judged(properties), violations(properties, replay)])
    return document("t", headline(properties), text(""), body, good=False)


class _Tags(HTMLParser):
    """The names of all elements of a page, which must be closed in order."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(page: str) -> set[str]:
    parser = _Tags()
    parser.feed(page)
    assert not parser.open
    return parser.names


OURS = tags(page_of([hostile("plain")]))


@given(st.text(alphabet=st.characters(), max_size=40))
def test_no_text_becomes_markup(value: str) -> None:
    """A page with any text has the elements of a page with a plain one, no more."""
    page = page_of([hostile(value)], value)
    assert tags(page) <= OURS
    page.encode("utf-8")


def test_hostile_text_is_shown_as_it_is_with_what_can_not_be_seen_spelled_out() -> None:
    """Hostile text is shown with its tags, control and direction characters spelled out."""
    page = page_of([hostile(HOSTILE)])

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search("[\x00-\x08\x1b\u202e\ud800]", page)
    assert "\\u202egnp.exe\\ud800" in page
    assert "default-src 'none'" in page


def test_a_violation_has_its_own_address_its_lines_bytes_and_replicas() -> None:
    """A violation has its own address, and the lines, bytes and replicas that prove it."""
    page = page_of([hostile("x")])

    assert '<article id="p1-1">' in page
    assert 'href="#p1"' in page
    assert "+0.000000 s" in page
    assert "ff 3c 62 3e" in page
    assert "... and 2 lines more." in page
    assert "... and 1 more." in page


@given(st.text(alphabet=st.characters(), max_size=40))
def test_any_text_gives_xml_that_can_be_read(value: str) -> None:
    """A failure's text has the evidence."""
    root = ET.fromstring(junit(value, 1.0, cases([hostile(value)])))  # noqa: S314 - our own

    (failure,) = root.iter("failure")
    assert "ff 3c 62 3e" in (failure.text or "")


def test_what_was_not_judged_is_skipped_not_passed() -> None:
    """A green case means that something was looked at."""
    found = cases(
        [
            Property(1, "a", True, 3),
            Property(2, "b", True, 0),
            Property(3, "c", True, 0, unjudged="it needs a history"),
        ]
    )

    assert [case.skipped for case in found] == ["", "nothing to judge it by", "it needs a history"]
    suite = ET.fromstring(junit("s", 1.0, [*found, Case("x", "run", "late")]))[0]  # noqa: S314
    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["4", "1", "2"]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ([Property(1, "a", True, 3)], "Every property holds"),
        ([Property(1, "a", False, 3), Property(2, "b", True, 1)], "1 of 2 properties is violated"),
        (
            [Property(1, "a", True, 3), Property(2, "b", True, 0, unjudged="why")],
            "Every property that could be judged holds, 1 of 2",
        ),
        (
            [Property(1, "a", True, 3), Property(2, "b", True, 0)],
            "Every property that could be judged holds, 1 of 2",
        ),
        ([Property(2, "b", True, 0)], "Nothing was judged"),
    ],
)
def test_the_headline_is_the_verdict(properties: list[Property], words: str) -> None:
    """The headline claims no more than was judged."""
    assert headline(properties) == words


def test_a_dump_has_positions_hex_and_text() -> None:
    """A dump has a position, hex and text for each sixteen bytes."""
    assert dump(bytes(range(0x30, 0x42)) + b"\n", 800).splitlines() == [
        "       800  30 31 32 33 34 35 36 37  38 39 3a 3b 3c 3d 3e 3f  0123456789:;<=>?",
        "       816  40 41 0a                                          @A.",
    ]
