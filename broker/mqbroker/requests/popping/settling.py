"""Gathers what members give back, or hide for another time: many requests in one entry of the log.

Acks of one delivery are one row with a bit for each message, however many requests they came in.
While one entry is on its way the next rows are gathered, so a busy broker writes few entries. Each
request is answered when its entry is applied, and told how many of its messages were not its own
any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from dledger.errors import AppendError, NotLeader
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from mqbroker import limits
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.refusal import busy, invalid
from mqbroker.requests.core import Core
from mqbroker.state.control import encode_control
from mqbroker.state.groups.bits import bits_to_bytes, lowest_bit
from mqbroker.state.groups.popping import PopAck, PopChange, Settled, SettlePopped


class Row(NamedTuple):
    """Messages of one delivery: those at the bits from `base` on."""

    group: str
    topic: str
    queue_id: int
    fence: int
    base: int
    bits: int


class Change(NamedTuple):
    """How messages are hidden anew; see `PopChange`."""

    row: Row
    visible_ms: int
    uncounted: bool
    keeps_fence: bool


class Outcome(NamedTuple):
    """How many messages were in flight, and the fence that they have by a change."""

    found: int
    fence: int = 0


#: Group, topic, queue id, fence, and the base that the bits begin at.
_Block: TypeAlias = tuple[str, str, int, int, int]


class _Gathered:
    """The rows of an entry, and who waits for it."""

    def __init__(self) -> None:
        self.acks: dict[_Block, int] = {}
        self.changes: list[tuple[Change, Tell[Outcome]]] = []
        self.waiting: list[tuple[list[Row], Tell[Outcome]]] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.changes)

    def ack(self, row: Row) -> None:
        """Merge a row with what else of its delivery is acknowledged near by."""
        block = _block(row)
        self.acks[block] = self.acks.get(block, 0) | row.bits << row.base - block[-1]


def _block(row: Row) -> _Block:
    return (*row[:4], row.base - row.base % limits.POP_MERGED_MESSAGES)


def _trimmed(row: Row) -> Row:
    """A row of the same messages that begins at the first one."""
    low = lowest_bit(row.bits)
    return row._replace(base=row.base + low, bits=row.bits >> low)


class Settling:
    """Gathers acks and changes of deliveries, to write many in one entry. `wake` is called when
    `flush` should be; `changed` with (group, topic) when something was applied."""

    def __init__(
        self, core: Core, wake: Callable[[], None], changed: Callable[[str, str], None]
    ) -> None:
        self._core = core
        self._wake = wake
        self._changed = changed
        self._gathered = _Gathered()
        self._on_its_way: _Gathered | None = None

    def ack(self, rows: list[Row], tell: Tell[Outcome]) -> None:
        """Note messages as done; `tell` gets the outcome. Refused if too many rows are gathered."""
        self._take_room(rows)
        for row in rows:
            self._gathered.ack(row)
        self._gathered.waiting.append((rows, tell))
        self._wake()

    def change(self, change: Change, tell: Tell[Outcome]) -> None:
        """Messages are hidden for another time. Refused beyond the bounds."""
        self._take_room([change.row])
        self._gathered.changes.append((change, tell))
        self._wake()

    def is_taking(self, row: Row) -> bool:
        """Whether an entry is on its way that acknowledges messages of a row, or gives them
        another fence."""
        sent = self._on_its_way
        if sent is None:
            return False
        if _count(row, sent.acks.get(_block(row), 0)):
            return True
        return any(
            _block(change.row) == _block(row)
            and _count(row, change.row.bits << change.row.base - _block(row)[-1])
            for change, _ in sent.changes
            if not change.keeps_fence
        )

    def _take_room(self, rows: list[Row]) -> None:
        kept, more = self._gathered.size_bytes, sum(map(_size_bytes, rows))
        if more > limits.POP_GATHERED_BYTES_MAX:
            raise invalid(
                f"a request with {more} bytes of acks; at most {limits.POP_GATHERED_BYTES_MAX} are "
                "taken"
            )
        if kept >= limits.POP_GATHERED_BYTES_MAX:
            raise busy(f"{kept} bytes of acks of popped messages wait")
        self._gathered.size_bytes += more

    def flush(self) -> None:
        """Write the gathered rows as one entry, after the entry that is on its way, if there is
        one."""
        if self._on_its_way is not None or not len(self._gathered):
            return
        sent = self._on_its_way = self._gathered
        self._gathered = later = _Gathered()
        later.changes = sent.changes[limits.POP_CHANGES_PER_ENTRY_MAX :]
        later.size_bytes = sum(_size_bytes(change.row) for change, _ in later.changes)
        del sent.changes[limits.POP_CHANGES_PER_ENTRY_MAX :]
        rows = [_trimmed(Row(*block, bits)) for block, bits in sent.acks.items()]
        entry = SettlePopped(
            acks=[PopAck(*row[:5], bits_to_bytes(row.bits)) for row in rows],
            changes=[
                PopChange(*row[:5], bits_to_bytes(row.bits), visible_ms, uncounted, keeps_fence)
                for (row, visible_ms, uncounted, keeps_fence), _ in sent.changes
            ],
            now_ms=self._core.assignments.now_ms(),
        )

        def done(outcome: Appended | AppendError) -> None:
            if self._on_its_way is sent:
                self._on_its_way = None
            if len(self._gathered):
                self._wake()
            self._tell(sent, rows, outcome)

        try:
            self._core.entries.append_nowait(encode_control(entry), Kind.CONTROL, done)
        except AppendError as error:
            done(error)
        except Exception:
            done(NotLeader(None))  # those who wait are to try again
            raise

    def _tell(self, sent: _Gathered, rows: list[Row], outcome: Appended | AppendError) -> None:
        if isinstance(outcome, AppendError):
            for *_, tell in (*sent.waiting, *sent.changes):
                tell(outcome)
            return
        settled = outcome.result
        assert isinstance(settled, Settled)  # what applying this entry returns
        found = {
            block: bits << row.base - block[-1]
            for block, row, bits in zip(sent.acks, rows, settled.acked, strict=True)
        }
        for asked, tell in sent.waiting:
            tell(Outcome(sum(_count(row, found[_block(row)]) for row in asked)))
        for (_, tell), (fence, bits) in zip(sent.changes, settled.changed, strict=True):
            tell(Outcome(bits.bit_count(), fence))
        named = [row[:2] for row in rows] + [each.row[:2] for each, _ in sent.changes]
        for group, topic in dict.fromkeys(named):
            self._changed(group, topic)

    def reset(self) -> None:
        """Leadership ended: those who wait are refused, and try again at the new leader."""
        gathered, self._gathered = self._gathered, _Gathered()
        self._on_its_way = None
        for *_, tell in (*gathered.waiting, *gathered.changes):
            tell(NotLeader(None))


def _size_bytes(row: Row) -> int:
    names = len(row.group) + len(row.topic)
    return limits.POP_ROW_BYTES + names + row.bits.bit_length() // 8


def _count(row: Row, found: int) -> int:
    """How many of a row's messages are among those of its block that were found."""
    return (row.bits << row.base - _block(row)[-1] & found).bit_count()
