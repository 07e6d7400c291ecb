"""Tells a client's retry from another send of the application, if a unique key comes again. Pure.

A stock client makes one unique key for each message object, and an application may send one object
many times: each time a message must be stored. The client repeats a send by itself only if it got
no answer. So a repeat is a retry if the answer for a copy can't have reached its sender:

* the copy has not been answered yet, and its sender either waits on another connection (which broke
  for the client, though we may not know yet) or has waited so long that it may have given up;
* its sender's connection was gone before the answer was written;
* an earlier leader stored it, and no sender has been answered with it since.

And the repeat must be the same send: from the same address (the port changes with a reconnect),
with equal body, flags and properties except those that each try makes anew, and within a client's
retry span, both by its own clock and by the store time. The queue may differ: stock clients choose
again.

A copy stands for one send at a time: its retry replaces the first sender, and once the retry is
answered the copy is forgotten. So if an object is sent again and again, at most one send is
mistaken for a retry. That can happen only right after a leader change, if the earlier leader's
answer did reach the client.

Only the leader knows whether an answer was written, so this memory is not replicated and begins
empty with each leadership. Copies that were answered are not kept, so it stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from dledger.remoting import message as names
from dledger.remoting.record import BORN_HOST_IPV6, STORE_HOST_IPV6
from mqbroker import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dledger.buffers import Buffer
    from mqbroker.leader.appending.drafts import NewRecord
    from mqbroker.state.dedup import StoredCopy

_T = TypeVar("_T")
_PORT_BYTES: Final = 4
_HOST_BITS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_SPAN_MS: Final = int(limits.RETRY_SPAN_S * 1000)

OF_ONE_TRY: Final = frozenset(
    name.encode()
    for name in (
        # Set by the broker: they depend on the requested queue and on the time.
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TIMER_OUT_MS,
        # Names of hooks and agents that trace each try as a span of its own: W3C, Zipkin, Jaeger,
        # SkyWalking.
        "traceparent",
        "tracestate",
        "b3",
        "X-B3-TraceId",
        "X-B3-SpanId",
        "X-B3-ParentSpanId",
        "X-B3-Sampled",
        "X-B3-Flags",
        "uber-trace-id",
        "sw8",
        "sw8-correlation",
        "sw8-x",
    )
)
"""Properties that may differ between two tries of one send."""


class Asker:
    """A sender that waits for an answer: its connection, since when (monotonic), and for what."""

    __slots__ = ("connection_id", "copy", "since_s")

    def __init__(self, connection_id: int, since_s: float) -> None:
        self.connection_id = connection_id
        self.since_s = since_s
        #: The first copy; None if it is not known yet, or nobody asks any more.
        self.copy: Copy | None = None


class Send(NamedTuple):
    """A try of a stock client to have messages stored."""

    keys: Sequence[bytes]
    """The dedup key of the send, then those under which an earlier try may have been stored
    elsewhere. Empty if the send can't be a retry: it has no unique key, or it is one-way."""
    records: Sequence[NewRecord]
    asker: Asker
    now_ms: int
    """The leader's clock, as for store times."""
    topic: str = ""
    """The one that it was sent to. What was stored before that was made again is no copy."""


@dataclass(eq=False, slots=True)
class Copy:
    """A copy whose sender may not have its answer."""

    key: bytes
    #: The sender that waits for the answer; None if it does not any more.
    asker: Asker | None
    #: The send that made it, until it is stored; then its place in the log.
    send: Send | None
    place: StoredCopy | None


class Unheard:
    """The copies that a retry may be compared with, known to the leader only."""

    def __init__(self, copies_max: int = limits.UNHEARD_COPIES_MAX) -> None:
        self._copies_max = copies_max
        self._copies: dict[bytes, list[Copy]] = {}
        self._left: dict[Copy, None] = {}
        self._answered: dict[int, None] = {}
        self._earlier_end = -1

    def reset(self, last_position: int) -> None:
        """A leadership begins; messages up to here were stored by earlier leaders."""
        self._copies.clear()
        self._left.clear()
        self._answered.clear()
        self._earlier_end = last_position

    def __len__(self) -> int:
        return sum(map(len, self._copies.values())) + len(self._answered)

    def of(self, key: bytes) -> Sequence[Copy]:
        """The copies of a key, the oldest first."""
        return self._copies.get(key, ())

    def unknown(self, key: bytes, place: StoredCopy) -> bool:
        """Whether an earlier leader stored a copy, and no sender was answered with it or waits for
        that."""
        return (
            place.position <= self._earlier_end
            and place.position not in self._answered
            and all(copy.place != place for copy in self.of(key))
        )

    def open(self, send: Send) -> Copy:
        """A send is to be stored: its sender waits."""
        copy = send.asker.copy = Copy(send.keys[0], send.asker, send, None)
        self.add(copy)
        return copy

    def add(self, copy: Copy) -> None:
        """Keep a copy until its sender is answered; if there are too many with one key, drop the
        oldest."""
        copies = self._copies.setdefault(copy.key, [])
        copies.append(copy)
        if len(copies) > limits.UNHEARD_COPIES_PER_KEY_MAX:
            self.close(copies[0])

    def take_over(self, copy: Copy, asker: Asker) -> None:
        """A retry replaces the sender that waited before."""
        copy.asker, asker.copy = asker, copy
        self._left.pop(copy, None)

    def answered(self, asker: Asker, *, reached: bool) -> None:
        """An answer was written to an open connection (`reached`), or its connection was gone."""
        copy, asker.copy = asker.copy, None
        if copy is None or copy.asker is not asker:
            return  # it can't be a retry, or another sender waits by now
        if reached:
            self.close(copy)
            if copy.place is not None and copy.place.position <= self._earlier_end:
                _keep(self._answered, copy.place.position, self._copies_max)
            return
        if copy not in self.of(copy.key):
            return  # of a leadership that has ended
        copy.asker = None
        oldest = _keep(self._left, copy, self._copies_max)
        if oldest is not None:
            self.close(oldest)

    def close(self, copy: Copy) -> None:
        """The copy is answered, or was not stored."""
        self._left.pop(copy, None)
        copies = self._copies.get(copy.key, [])
        if copy in copies:
            copies.remove(copy)
        if not copies:
            self._copies.pop(copy.key, None)


def _keep(kept: dict[_T, None], new: _T, keep_max: int) -> _T | None:
    """Keep one more; if there are too many, drop and return the oldest."""
    kept[new] = None
    if len(kept) <= keep_max:
        return None
    oldest = next(iter(kept))
    del kept[oldest]
    return oldest


def waits_in_vain(waiting: Asker | None, again: Asker) -> bool:
    """Whether the sender that waits may be the one that asks again now."""
    return (
        waiting is None
        or waiting.connection_id != again.connection_id
        or again.since_s - waiting.since_s >= limits.RETRY_PATIENCE_S
    )


def same_send(first: Sequence[NewRecord], again: Sequence[NewRecord]) -> bool:
    """Whether two tries may be of one send: the same messages, of one client, within a retry
    span."""
    return len(first) == len(again) and all(map(_same_message, first, again))


def in_span(stored_ms: int, now_ms: int) -> bool:
    """Whether a copy of that store time is young enough for a retry."""
    return now_ms - stored_ms <= _SPAN_MS


def _same_message(first: NewRecord, again: NewRecord) -> bool:
    return (
        first.body == again.body
        and first.born_host[:-_PORT_BYTES] == again.born_host[:-_PORT_BYTES]
        and abs(again.born_timestamp_ms - first.born_timestamp_ms) <= _SPAN_MS
        and first.flag == again.flag
        and (first.sys_flag ^ again.sys_flag) & ~_HOST_BITS == 0
        and first.reconsume_times == again.reconsume_times
        and _lasting(first.properties) == _lasting(again.properties)
    )


def _lasting(properties: Buffer) -> Mapping[bytes, bytes]:
    """The properties without those that each try makes anew, in any order."""
    entries = (entry.partition(b"\x01") for entry in bytes(properties).split(b"\x02"))
    return {name: value for name, _, value in entries if name and name not in OF_ONE_TRY}
