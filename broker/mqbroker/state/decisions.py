"""Batches that are decided, and the entries staged for them. Pure.

Of each producer's name the last batch is known, and where its entry lies.

A named producer's write may decide a batch, whose rows are staged in half messages
(docs/explanation/spark-sink.md). Of a batch that is decided, or an earlier one, nothing is decided
again, by whichever instance has the name. So decisions are kept apart from the names
(`mqbroker.state.producers`), which are forgotten when they are not used for days.

=========================  =====================  ==================
a name whose last batch    is asked to decide     and then its last
=========================  =====================  ==================
is not known               batch n                is n
is n                       batch m > n            is m
is n                       batch m <= n           is n: refused
is known, or not           `CLOSING`              is not known
=========================  =====================  ==================

A writer closes its name when no batch of it will ever come again. All others are kept. When there
are more than `DECIDED_MAX`, those are forgotten that decided nothing for the longest time.

A staged entry is a half message whose body is finished records (`dledger.remoting.bodies.staged`).
It is stored with a mark and a note before it. The mark reads like a move out of a topic that no
version has, so that an older replica stops there (see `mqbroker.state.once`): as a leader, it would
ask producers about it, and give it up after a while.

Staged entries share the room of half messages. They have their own part of it, of which a name may
have as much as it leaves free: neither one query nor all of them take the room of transactions.
Where users sign, each user has a share by name, so nobody fills that of another user's query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dledger.buffers import Buffer
from dledger.remoting.numbers import INT64_MAX
from mqbroker import limits
from mqbroker.state.aside import Unusable, decoded
from mqbroker.state.shares import Shares, owner_name

STAGED_MARK: Final = b"STAGED 0"
GROUP: Final = "%STAGED%"
"""Begins the producer group of staged entries (`staging_group`). No client sends for such a one."""
CLOSING: Final = INT64_MAX
"""The batch behind all others."""

#: (name, batch, position, size), as a snapshot keeps it.
DecidedRow: TypeAlias = tuple[str, int, int, int]


class Decided(NamedTuple):
    """The last batch of a name, and where the body of the decision's entry lies."""

    batch: int
    position: int
    size: int


class Decisions:
    """The last decision of each name, the newest at the end."""

    def __init__(self, names_max: int | None = None) -> None:
        self._max = limits.DECIDED_MAX if names_max is None else names_max
        self._last: dict[str, Decided] = {}

    def __len__(self) -> int:
        return len(self._last)

    def last(self, name: str) -> Decided | None:
        """The last batch that was decided under a name, by whichever instance."""
        return self._last.get(name)

    def check(self, name: str, batch: int) -> None:
        """Raise Unusable for a batch that was decided: no leader decides it again."""
        last = self.last(name)
        if last is not None and batch <= last.batch:
            raise Unusable(
                f"it decides batch {batch} of producer {name!r}, but batch {last.batch} is decided"
            )

    def decide(self, name: str, decided: Decided) -> None:
        """Note a decision, which was checked."""
        self._last.pop(name, None)
        if decided.batch == CLOSING:
            return
        self._last[name] = decided
        while len(self._last) > self._max:
            del self._last[next(iter(self._last))]

    def picture(self) -> list[DecidedRow]:
        """The rows for a snapshot."""
        return [(name, *decided) for name, decided in self._last.items()]

    def restore(self, rows: Iterable[DecidedRow]) -> None:
        """Take over what a snapshot kept."""
        self._last = {name: Decided(*decided) for name, *decided in rows}


class StagedNote(msgspec.Struct, frozen=True, array_like=True):
    """The note: the size of the half message in bytes."""

    sizes: list[int]


def decode_staged_note(body: Buffer) -> StagedNote:
    """The note in a record's body. Raises Unusable for bytes that no leader writes."""
    note = decoded(body, StagedNote, "it says that rows are staged, and not how many bytes")
    if len(note.sizes) != 1 or note.sizes[0] <= 0:
        raise Unusable(f"it stages entries of {note.sizes!s:.80} bytes")
    return note


def staging_group(name: str, user: str = "") -> str:
    """The producer group of staged entries, which has a share of their room: a name's, or that of a
    user who stages under the name. "" is a user that is not known."""
    return f"{GROUP}{user} {name}" if user else f"{GROUP}{name}"


def staged_full(halves: Mapping[str, int], group: str) -> str | None:
    """The bound that keeps a group from having a further staged entry, if one does. `halves` are
    the half messages that wait, by producer group."""
    shares = Shares("staged entries", "producer", limits.STAGED_MAX)
    for each, count in halves.items():
        if each.startswith(GROUP):
            shares.change(each, count)
    owner = owner_name(group.encode())
    return None if shares.room(owner) else shares.full(owner)
