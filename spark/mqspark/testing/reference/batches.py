"""Property 19: a batch that is stored whole is whole or absent, and batches come in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from dledger.log.entry import HEADER_BYTES
from dledger.remoting.message import properties_decode
from mqspark.source.records import Place, RecordColumns, RecordWalk
from mqspark.testing.reference.inputs import Finding, Inputs
from mqspark.testing.reference.lives import changes
from mqspark.testing.rewriting import StoredEntry, StoredMessage

_MOVES: Final = "RMQ_SYS_MOVE_OP_TOPIC"
_HALVES: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_LAST: Final = 2**63 - 1
Row = tuple[str | None, bytes, bytes]


@dataclass(frozen=True)
class Staged:
    """Staged rows, and for whom they are."""

    offset: int
    position: int
    whom: tuple[str, int, int, str]
    topic: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class End:
    """End of a half message: rows, or nothing."""

    offset: int
    position: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Decision:
    """Staged entries that count of a batch, each by broker, offset and position."""

    name: str
    epoch: int
    batch: int
    position: int
    places: tuple[tuple[str, int, int], ...]


def whole(run: Inputs) -> Iterator[Finding]:
    """19: what decisions name becomes messages, once, in order; and nothing else that is staged."""
    entries = {entry.body: entry for log in run.logs.values() for entry in log}.values()
    noted = [e for e in entries if e.messages and e.messages[0].topic == _MOVES]
    staged = [found for entry in noted for found in _staged(entry)]
    ends = [found for entry in noted for found in _ends(entry)]
    decisions = sorted((d for e in noted for d in _decisions(e)), key=lambda d: d.position)
    for name in {*(d.name for d in decisions), *(each.whom[0] for each in staged)}:
        own = [decision for decision in decisions if decision.name == name]
        counting = _counting(own)
        for decision in own:
            if decision not in counting and decision.position < _alike(run):
                last = [each for each in counting if each.position < decision.position][-1]
                again = decision.batch <= last.batch
                yield 19, "decided again" if again else "fenced", None, None, None, None
        yield from _followed(run, counting, staged, ends)
        for each in staged:
            if each.whom[0] == name:
                yield from _published(run, counting, each, ends)


def _counting(decisions: list[Decision]) -> list[Decision]:
    """The decisions of a name that are above all before them."""
    counting: list[Decision] = []
    for decision in decisions:
        last = counting[-1] if counting else None
        if (
            last is None
            or last.batch == _LAST
            or (decision.batch > last.batch and decision.epoch >= last.epoch)
        ):
            counting.append(decision)
    return counting


def _followed(
    run: Inputs, decisions: list[Decision], staged: list[Staged], ends: list[End]
) -> Iterator[Finding]:
    sure = [decision for decision in decisions if decision.position < _alike(run)]
    seen: list[int] = []
    named: set[tuple[tuple[str, int, int], tuple[str, int, int, str]]] = set()
    for decision in sure:
        whom = (decision.name, decision.epoch, decision.batch, run.broker)
        for place in decision.places:
            _, offset, position = place
            if place[0] != run.broker or (place, whom) in named:
                continue
            named.add((place, whom))
            held = [s for s in staged if (s.offset, s.position) == (offset, position)]
            if not held or held[0].whom != whom:
                if min(run.begins.values()) <= position < _alike(run):
                    yield 19, "misnamed", None, None, None, offset
                continue
            own = _ends_of(run, held[0], ends)
            for end in own:
                if not end.rows and not _is_deleted(run, held[0], end.position):
                    yield 19, "dropped", None, None, None, offset
            ended = any(end.offset == offset for end in ends)
            if decision is not sure[-1] and position < _alike(run) and not ended:
                yield 19, "missing", None, None, None, offset
            shown = [end.position for end in own if end.rows]
            if shown and any(at > shown[0] for at in seen):
                yield 19, "disordered", None, None, None, offset
            seen += shown[:1]


def _published(
    run: Inputs, decisions: list[Decision], staged: Staged, ends: list[End]
) -> Iterator[Finding]:
    """Findings about staged rows: whether they became messages as they were, once, and by a
    decision."""
    own = _ends_of(run, staged, ends)
    shown = [end for end in own if end.rows]
    if not shown:
        return
    if shown[0].rows != staged.rows:
        yield 19, "altered", None, None, None, staged.offset
    if len(own) > 1:
        yield 19, "twice", None, None, None, staged.offset
    if staged.whom[3] != run.broker:
        return
    place = (run.broker, staged.offset, staged.position)
    naming = [decision for decision in decisions if place in decision.places]
    before = [decision.batch for decision in decisions]
    if min(run.begins.values()) and not any(batch <= staged.whom[2] for batch in before):
        return
    if not naming or naming[0].position > shown[0].position:
        yield 19, "undecided", None, None, None, staged.offset


def _alike(run: Inputs) -> int:
    """The position up to which all logs are the same."""
    if run.first_difference is not None:
        return run.position_at(run.first_difference)
    last = next(iter(run.logs.values()))[-1]
    return last.position + HEADER_BYTES + len(last.body)


def _ends_of(run: Inputs, staged: Staged, ends: list[End]) -> list[End]:
    found = {
        end.position: end
        for end in ends
        if end.offset == staged.offset and staged.position < end.position < _alike(run)
    }
    return [found[position] for position in sorted(found)]


def _is_deleted(run: Inputs, staged: Staged, before: int) -> bool:
    return any(
        name == "delete_topic"
        and arguments["topic"] == staged.topic
        and staged.position < position <= before
        for name, arguments, position in changes(run.logs)
    )


def _staged(entry: StoredEntry) -> Iterator[Staged]:
    mark, *others = entry.messages
    for message in others[1:] if _body(mark) == b"STAGED 0" else ():
        named = _properties(message)
        name, epoch, batch, home = named["STAGED"].split(" ")
        whom = (name, int(epoch), int(batch), home)
        rows = RecordColumns()
        body = memoryview(_body(message))
        RecordWalk(body, 0, verify=False).walk(rows, Place(None, None, 0), 0, len(body))
        yield Staged(
            message.queue_offset,
            message.position,
            whom,
            named["REAL_TOPIC"],
            tuple(
                (topic, bytes(body[at : at + size]), bytes(body[of : of + length]))
                for topic, (at, size), (of, length) in zip(
                    rows.topics, rows.bodies, rows.properties, strict=True
                )
            ),
        )


def _ends(entry: StoredEntry) -> Iterator[End]:
    words = _body(entry.messages[0]).split(b" ")
    if words[0] == _HALVES.encode():
        rows = tuple((m.topic, _body(m), _raw_properties(m)) for m in entry.messages[1:])
        yield End(int(words[2].split(b"-")[0]), entry.messages[0].position, rows)


def _decisions(entry: StoredEntry) -> Iterator[Decision]:
    if _body(entry.messages[0]) != b"WRITTEN-ONCE 1":
        return
    note = msgspec.msgpack.decode(_body(entry.messages[1]))
    content: Mapping[str, list[list[int]]] = msgspec.msgpack.decode(note[8]) if note[8] else {}
    places = tuple((broker, *place) for broker, found in content.items() for place in found)
    yield Decision(note[0], note[1], note[7], entry.messages[0].position, places)  # type: ignore[arg-type]


def _body(message: StoredMessage) -> bytes:
    return message.raw[message.body_at : message.body_at + message.body_bytes]


def _raw_properties(message: StoredMessage) -> bytes:
    rest = message.raw[message.body_at + message.body_bytes :]
    return rest[1 + rest[0] + 2 :]


def _properties(message: StoredMessage) -> dict[str, str]:
    return properties_decode(_raw_properties(message))


JUDGES: Final[tuple[Callable[[Inputs], Iterator[Finding]], ...]] = (whole,)
