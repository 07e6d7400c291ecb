"""Named places in our code where a chaos run may stop the process, hold it, or fail its disk. Pure.

A crash matters between two steps of which the second relies on the first: written and synced, saved
and promised, applied and answered. Each such place has a name in `PLACES` and one call of
:func:`failpoint`. What happens there is decided by nobody, unless a handler was set: then the
process was started for a chaos run (`dledger.program.arming`). Without one a call costs some 30 ns,
about as much as reading an attribute twice, and a message passes a handful of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class When(Enum):
    """Which work comes by a place: what a run has to do so that it is reached."""

    LOAD = "sends"
    ROLL = "a segment that becomes full"
    SAVE = "a state that is saved: an end in order, or a long log"
    START = "a start"
    ELECTION = "an election"
    TRANSFER = "a transfer of leadership"
    MEMBERS = "a new member"
    EMPTY = "an empty disk"
    CUT = "a tail that no other replica has"
    REPAIR = "a damaged log"
    RETENTION = "old segments"
    COPY = "an empty disk, where the log has lost its head"
    DELAY = "delayed messages"
    TRANSACTION = "transactions"
    TOPIC = "a new topic"


class By(Enum):
    """Which replica comes by a place."""

    LEADER = "the leader"
    FOLLOWER = "a follower"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Place:
    """A place: which work of which replica comes by, and what has happened there, and what not."""

    name: str
    when: When
    by: By
    words: str


_WORDS: Final = {
    (When.LOAD, By.ANY): {
        "disk.write": "bytes are about to be written to the log",
        "disk.torn-write": "half of the bytes are written",
        "disk.sync": "written bytes are about to be synced",
        "disk.replace": "a small file is about to be replaced",
        "disk.replacing": "a small file's new content is synced, and not in place",
        "disk.replaced": "a small file is replaced, and its folder not synced",
        "log.staged": "an entry is in memory only",
        "log.written": "entries are written, and not synced",
        "log.marked": "a segment says what was durable before; the rest is not synced",
        "log.durable": "entries are durable, and not counted",
        "log.checkpoint": "a checkpoint is about to be saved",
    },
    (When.ROLL, By.ANY): {
        "disk.create": "a new segment is about to be made",
        "disk.created": "a new segment has its blocks, and no name yet",
        "disk.named": "a new segment has its name, and its folder is not synced",
        "log.roll": "a new segment is the log's last, and empty",
    },
    (When.SAVE, By.ANY): {
        "snapshot.begin": "queues and index are about to be flushed for a snapshot",
        "snapshot.sync": "a snapshot is taken, its queues are not synced",
        "snapshot.write": "queues are synced, the snapshot is not written",
        "snapshot.written": "the snapshot is written, what it no longer needs is there",
        "snapshot.saved": "the snapshot is complete, the log may be shortened",
        "index.flush": "the key index is about to be written",
    },
    (When.LOAD, By.LEADER): {
        "batch.take": "a batch is checked, and not in the log",
        "batch.appended": "a batch is in the log, and its answer waits",
        "raft.sent": "entries are sent to a follower",
        "raft.committed": "a majority holds entries, and nobody knows",
        "batch.applied": "a batch is applied, and not answered",
        "batch.answered": "a batch is answered, the next one is not",
        "reply.send": "an answer is about to be written",
        "offsets.write": "gathered offsets of consumers are about to be appended",
    },
    (When.LOAD, By.FOLLOWER): {
        "raft.received": "a leader's entries are here, and not in the log",
        "raft.acknowledge": "entries are durable, and not acknowledged",
    },
    (When.START, By.ANY): {
        "recovery.checked": "a start has read the log, and changed nothing",
        "recovery.dropped": "the data behind the log's end is removed",
        "recovery.opened": "the log is open, and nobody uses it yet",
        "register.send": "a replica is about to register with a name server",
        "register.known": "a name server knows of a replica, which does not know that",
    },
    (When.ELECTION, By.FOLLOWER): {
        "vote.save": "term and vote are about to be saved",
        "vote.saved": "term and vote are saved, and not said",
        "raft.elect": "a majority would vote for this node, which does not stand yet",
        "raft.elected": "this node leads, and has said nothing",
        "broker.serve": "a leader has applied all before its term, and takes nothing yet",
    },
    (When.TRANSFER, By.LEADER): {
        "transfer.begin": "a leader takes no more appends, since it hands over",
        "transfer.ask": "the next leader is about to be asked to elect",
    },
    (When.TRANSFER, By.FOLLOWER): {
        "transfer.asked": "the next leader is asked to elect, and has not",
    },
    (When.MEMBERS, By.ANY): {
        "members.save": "new members are in force, and not saved",
        "members.saved": "new members are saved, their entry is not in the log",
    },
    (When.EMPTY, By.FOLLOWER): {
        "members.eligible": "a node may vote, and has not saved that",
    },
    (When.CUT, By.FOLLOWER): {
        "log.cut": "a tail is about to be cut",
        "log.cut-marked": "the watermark for the tail is lowered, and the tail is there",
        "log.cut-done": "the tail is gone, its successor not here",
    },
    (When.REPAIR, By.FOLLOWER): {
        "repair.entry": "a damaged entry is written anew, and not synced",
        "repair.finish": "all damaged entries are written anew, and not synced",
    },
    (When.RETENTION, By.LEADER): {
        "retention.decide": "a leader is about to append where the log shall begin",
    },
    (When.RETENTION, By.ANY): {
        "retention.applied": "the index begins later, its old files are there",
        "log.trim": "old segments are forgotten, and on the disk",
        "log.trimmed": "the log's new beginning is saved, old segments are on the disk",
        "disk.remove": "a file is about to be removed",
    },
    (When.COPY, By.LEADER): {
        "head.send": "a follower lacks what this log has lost: its head is sent",
        "state.give": "a part of the state is about to be sent",
    },
    (When.COPY, By.FOLLOWER): {
        "members.adopt": "a node has heard of other members, and has not saved them",
        "head.take": "a leader's head is here, and not saved",
        "log.replace": "a leader's head is saved, the old log is on the disk",
        "log.replace-dropped": "the old log is gone, the new one is empty",
        "log.replace-begun": "the new log has its first entry, which the head still has, too",
        "state.install": "another's state is here, and not taken over",
        "state.installed": "another's state is taken over, and not saved",
    },
    (When.DELAY, By.LEADER): {
        "delay.move": "due messages are about to be moved by an entry",
        "delay.moved": "due messages are moved, the next ones are not",
    },
    (When.TRANSACTION, By.LEADER): {
        "transaction.end": "the end of a transaction is about to be appended",
        "transaction.ended": "the end of a transaction is applied, and not answered",
    },
    (When.TOPIC, By.LEADER): {
        "topic.put": "topics are about to be appended",
    },
    (When.TOPIC, By.ANY): {
        "topic.applied": "topics are made, name servers do not know them",
    },
}

PLACES: Final = {
    name: Place(name, when, by, words)
    for (when, by), names in _WORDS.items()
    for name, words in names.items()
}
"""All of them; `mqchaos failpoints` prints this table."""

FAILING: Final = frozenset({"disk.write", "disk.sync", "disk.create", "disk.replace"})
"""Where an operation of the disk may be made to fail: its caller handles an OSError there."""


TORN_WRITE: Final = "disk.torn-write"
VARIABLE: Final = "DLEDGER_FAILPOINTS"
"""The environment variable with the folder by which a process takes orders."""


class Seam:
    """The settings of a chaos run, and of nothing else.

    `handler` gets the place that is reached, and returns whether to do only half of what
    follows. `ahead_ms`: by how much the broker's clock is ahead.
    """

    __slots__ = ("ahead_ms", "handler")

    def __init__(self) -> None:
        self.handler: Callable[[str], bool] | None = None
        self.ahead_ms = 0


SEAM: Final = Seam()


def failpoint(place: str) -> bool:
    """Report that a process has come to `place`. It may take long, or never return, or raise
    OSError if the disk's.

    Returns whether what follows shall be done by halves, which only `disk.write` heeds.
    """
    return SEAM.handler is not None and SEAM.handler(place)
