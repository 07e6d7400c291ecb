"""Producers with a name: which instance may write, and what it has written last. Pure.

A name belongs to the instance that registered it last. Registering is an entry of the log, and its
index is the instance's *epoch*: it is above every epoch before, also above one that was forgotten
since. A producer writes in a few *streams*, one thing at a time in each, under a sequence that
grows. Of each stream the last is remembered, with its place in the log, for as long as the name is:
so a repeat gets the first answer, however much was stored since.

=======================  ==============================  ===========================================
a name that              is asked to                     and then
=======================  ==============================  ===========================================
is not known             REGISTER by a at entry e         is at epoch e, nothing written
is at epoch e, by a      REGISTER by a                   is as it was: the answer was lost
is at epoch e            REGISTER by b at entry f > e    is at epoch f, nothing written; e is fenced
is at epoch f, once a's  REGISTER by a                   is as it was: refused as fenced
is at e, stream s at n   WRITE e, s, m > n               has stream s at m
is at e, stream s at n   WRITE e, s, n                   is as it was: the first answer again
is at e, stream s at n   WRITE e, s, m < n               is as it was: refused as overtaken
is at e, nothing written FORGET                           is not known
is at e, stream s at n   FORGET                           is as it was
is at e                  its last write (closing)         is not known
is at epoch f            WRITE e < f                     is as it was: refused as fenced
is not known             WRITE e                         is not known: refused as forgotten
=======================  ==============================  ===========================================

Numbers may be left out: a write that its producer gave up, with an unknown outcome, is either
stored before the next one of its stream, or overtaken by it and refused.

Where users sign, a name belongs to the user who registered it first. While that one is a user,
nobody else registers or writes under it, but those who may do everything.

An instance that was replaced does not get the name back: its registration may only have been slow,
or repeated. The last `INSTANCES_PER_NAME_KEPT` of a name are remembered for that.

A name that was not used for `PRODUCER_KEPT_S` is forgotten when another one is registered. When
all places are taken, the leader has names forgotten that never wrote anything, and that no other
instance had: nobody loses anything that it could be asked about. The leader asks `judge` before it
appends, and appends one write of a stream at a time. So an entry that `check` refuses was not
written by a leader; but one may have been decided a moment before its name was forgotten, and makes
the name known again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.rows.picture import Rows, rows_of

#: (name, instances, epoch, used at ms, rows of stream, sequence, position, size), as a snapshot
#: keeps it.
ProducerRow: TypeAlias = tuple[str, list[str], int, int, list[tuple[int, int, int, int]]]

_KEPT_MS = int(limits.PRODUCER_KEPT_S * 1000)


class Stamp(NamedTuple):
    """The writer of a write, its stream, and the write's number in it."""

    name: str
    epoch: int
    stream: int
    sequence: int


class Written(NamedTuple):
    """The last write of a stream: its sequence, and where its entry's body lies."""

    sequence: int
    position: int
    size: int


class Judged(Enum):
    """The verdict on a write."""

    NEW = "it is to be stored"
    REPEATED = "it is stored: the first answer holds"
    OVERTAKEN = "a later one is stored"
    FENCED = "a newer instance has the name"
    FORGOTTEN = "the name is not known"
    TAKEN = "another user has the name"


class Claim(NamedTuple):
    """A user's claim to a name; "" is an unknown user. `over`: the user may take any name."""

    user: str = ""
    over: bool = True


class _Producer:
    __slots__ = ("epoch", "instances", "owner", "streams", "used_ms")

    def __init__(self, instances: list[str], epoch: int, used_ms: int, owner: str = "") -> None:
        #: The one that has the name, and those that had it before.
        self.instances = instances
        self.epoch = epoch
        self.used_ms = used_ms
        #: The user whose the name is; "" for nobody's.
        self.owner = owner
        self.streams: dict[int, Written] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be missed: nothing is written, and nobody is fenced."""
        return not self.streams and len(self.instances) == 1


class Producers:
    """The names, the one that was used last at the end."""

    def __init__(self, names_max: int | None = None) -> None:
        self._names_max = limits.PRODUCERS_MAX if names_max is None else names_max
        self._names: dict[str, _Producer] = {}

    def __len__(self) -> int:
        return len(self._names)

    def epoch(self, name: str) -> int | None:
        """The epoch of the instance that has a name."""
        known = self._names.get(name)
        return None if known is None else known.epoch

    def owner(self, name: str) -> str:
        """The user whose a name is; "" for nobody's."""
        known = self._names.get(name)
        return "" if known is None else known.owner

    def written(self, name: str, stream: int) -> Written | None:
        """The last write of a stream."""
        known = self._names.get(name)
        return None if known is None else known.streams.get(stream)

    def register(
        self, name: str, instance: str, index: int, now_ms: int, owner: str = ""
    ) -> int | Literal[Judged.FENCED] | None:
        """Give a name to an instance, by the entry `index`; returns its epoch. The name is the
        `owner`'s then.

        FENCED if it was replaced already. None if there are too many names: then nothing has
        changed but that old ones are forgotten.
        """
        known = self._names.get(name)
        if known is None:
            self._forget(now_ms)
            if len(self._names) >= self._names_max:
                return None
        if known is None:
            known = _Producer([instance], index, now_ms)
        elif instance in known.instances[1:]:
            return Judged.FENCED
        elif instance != known.instances[0]:
            kept = known.instances[: limits.INSTANCES_PER_NAME_KEPT - 1]
            known = _Producer([instance, *kept], index, now_ms)
        known.owner = owner
        self._use(name, known, now_ms)
        return known.epoch

    def are_outdated(self, now_ms: int) -> bool:
        """Whether a registration would have a name forgotten that was not used for so long."""
        oldest = next(iter(self._names.values()), None)
        return oldest is not None and oldest.used_ms + _KEPT_MS < now_ms

    def idle(self, before_ms: int) -> Iterator[str]:
        """The names that never wrote anything, if they were registered before that; the one that
        has waited longest first."""
        for name, producer in self._names.items():
            if producer.used_ms < before_ms and producer.is_idle:
                yield name

    def forget(self, names: Iterable[str]) -> None:
        """Forget those of these names that never wrote anything."""
        for name in names:
            known = self._names.get(name)
            if known is not None and known.is_idle:
                del self._names[name]

    def close(self, name: str) -> None:
        """Forget a name that writes nothing any more."""
        self._names.pop(name, None)

    def judge(self, stamp: Stamp) -> Judged:
        """The verdict on a write that is asked for now."""
        known = self._names.get(stamp.name)
        if known is None:
            return Judged.FORGOTTEN
        if known.epoch != stamp.epoch:
            return Judged.FENCED
        last = known.streams.get(stamp.stream)
        if last is None or stamp.sequence > last.sequence:
            return Judged.NEW
        return Judged.REPEATED if stamp.sequence == last.sequence else Judged.OVERTAKEN

    def check(self, stamp: Stamp) -> None:
        """Raise Unusable for a write that no leader appends."""
        judged = self.judge(stamp)
        if judged not in (Judged.NEW, Judged.FORGOTTEN):
            raise Unusable(
                f"it is write {stamp.sequence} in stream {stamp.stream} of producer "
                f"{stamp.name!r}, epoch {stamp.epoch}: {judged.value}"
            )

    def write(self, stamp: Stamp, position: int, size: int, now_ms: int) -> None:
        """Note a write that was checked before."""
        known = self._names.get(stamp.name) or _Producer([""], stamp.epoch, now_ms)
        known.streams[stamp.stream] = Written(stamp.sequence, position, size)
        self._use(stamp.name, known, now_ms)

    def _use(self, name: str, producer: _Producer, now_ms: int) -> None:
        producer.used_ms = max(producer.used_ms, now_ms)
        self._names.pop(name, None)
        self._names[name] = producer

    def _forget(self, now_ms: int) -> None:
        """Forget names at the front, which were not used for the longest time."""
        while self._names:
            name = next(iter(self._names))
            if not self.are_outdated(now_ms):
                return
            del self._names[name]

    def picture(self) -> Generator[None, None, Rows]:
        """The rows for a snapshot."""
        rows: list[ProducerRow] = []
        for name, producer in self._names.items():
            streams = [(stream, *written) for stream, written in producer.streams.items()]
            rows.append((name, producer.instances, producer.epoch, producer.used_ms, streams))
            yield
        return rows_of(rows)

    def owners(self) -> dict[str, str]:
        """The names that are somebody's, for a snapshot."""
        return {name: each.owner for name, each in self._names.items() if each.owner}

    def give(self, owners: Mapping[str, str]) -> None:
        """Take over what a snapshot kept of that."""
        for name, owner in owners.items():
            if (known := self._names.get(name)) is not None:
                known.owner = owner

    def restore(self, rows: Iterable[ProducerRow]) -> None:
        """Take over what a snapshot kept."""
        self._names.clear()
        self.add_saved(rows)

    def add_saved(self, rows: Iterable[ProducerRow]) -> None:
        """Take over a further part of that."""
        for name, instances, epoch, used_ms, streams in rows:
            producer = self._names[name] = _Producer(instances or [""], epoch, used_ms)
            producer.streams = {stream: Written(*written) for stream, *written in streams}
