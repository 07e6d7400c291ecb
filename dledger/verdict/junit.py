"""A verdict as JUnit XML, which every CI shows: a test case for each property. Pure.

What was not judged, or had nothing to be judged by, is skipped, not passed. A failure's text has
the evidence of the first violations. Characters that XML does not allow are spelled out.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.limits import VIOLATIONS_IN_TEXT_MAX
from dledger.verdict.bytes_told import dump
from dledger.verdict.form import Property, Violation

#: The characters that XML 1.0 has no way to write.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Case:
    """A test case of a JUnit report. It passed if there is neither a failure nor a reason why it
    was skipped."""

    name: str
    group: str
    failure: str = ""
    evidence: str = ""
    skipped: str = ""


def cases(properties: Sequence[Property]) -> list[Case]:
    """A case for each property."""
    return [_case(each) for each in properties]


def _case(each: Property) -> Case:
    name = f"property {each.number}: {each.title}"
    if not each.holds:
        count = max(each.count, len(each.violations))
        shown = [_text(violation) for violation in each.violations[:VIOLATIONS_IN_TEXT_MAX]]
        hidden = count - len(shown)
        shown += [f"... and {hidden:,} more"] if hidden else []
        return Case(name, "audit", f"{count:,} violations", "\n\n".join(shown))
    if each.unjudged or not each.checked:
        return Case(name, "audit", skipped=each.unjudged or "nothing to judge it by")
    return Case(name, "audit")


def junit(suite: str, seconds: float, some: Sequence[Case]) -> bytes:
    """The whole document as JUnit's XML."""
    counts = {
        "tests": str(len(some)),
        "failures": str(sum(bool(each.failure) for each in some)),
        "skipped": str(sum(bool(each.skipped) for each in some)),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    root = ET.Element("testsuites", {key: counts[key] for key in ("tests", "failures", "time")})
    found = ET.SubElement(root, "testsuite", {"name": _allowed(suite), **counts})
    for each in some:
        case = ET.SubElement(
            found,
            "testcase",
            {"name": _allowed(each.name), "classname": _allowed(f"{suite}.{each.group}")},
        )
        if each.failure:
            failure = {"message": _allowed(each.failure), "type": "violation"}
            ET.SubElement(case, "failure", failure).text = _allowed(each.evidence)
        elif each.skipped:
            ET.SubElement(case, "skipped", {"message": _allowed(each.skipped)})
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _text(violation: Violation) -> str:
    where = [f"{name} {value}" for name, value in _named(violation) if value not in (None, [])]
    lines = [f"{violation.what}: {violation.detail or ''}", f"  {', '.join(where)}"]
    if violation.exhibit is not None:
        lines += [f"  {line}" for line in violation.exhibit.lines]
        for held in violation.exhibit.held:
            lines.append(f"  {held.replica} at {held.position}: {held.what}")
            dumped = dump(bytes.fromhex(held.data), held.data_at)
            lines += [f"    {line}" for line in dumped.splitlines()]
    return "\n".join(lines)


def _named(violation: Violation) -> list[tuple[str, object]]:
    return [
        ("message", violation.message_id),
        ("broker", violation.broker),
        ("replica", violation.replica),
        ("topic", violation.topic),
        ("queue", violation.queue_id),
        ("offset", violation.queue_offset),
        ("positions", violation.positions),
    ]


def _allowed(value: str) -> str:
    return _FORBIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
