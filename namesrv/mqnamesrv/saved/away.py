"""The broker groups that are away and their queues, kept over the ends of this name server.

A key's queue follows from all queues of its topic, those of groups that are away among them
(`topics`). If every name server ends while a group is away, nobody else can tell a producer that
begins which queues that group has: the keys of all groups would move. So such groups are entries of
the key-value config, as durable as that is. They are written within two seconds after a group has
left, and removed once it is back.

An entry's key is a group's name and a number. Its value is the cluster, some rows, and whether the
group had proven that it belongs to the cluster: `[cluster, [[topic, read queues, write queues,
permission, system flag], ...], proven]`. Entries of earlier versions don't say that it had, so they
count as if it had not. An entry that can't be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from trio.lowlevel import checkpoint

from dledger.errors import DledgerError
from dledger.observe import get_logger
from dledger.program.pulse import look
from dledger.remoting.bodies import TopicConfig
from dledger.remoting.numbers import Int32
from mqnamesrv import limits
from mqnamesrv.routing.topics import AbsentGroup, TopicTable
from mqnamesrv.saved.kv_file import KvStore

ABSENT_QUEUES = "ABSENT_QUEUES"
"""The namespace of the entries."""

_Queues = Annotated[int, msgspec.Meta(ge=0, le=limits.QUEUES_PER_TOPIC_MAX)]
_Perm = Annotated[int, msgspec.Meta(ge=0, le=limits.PERM_MAX)]
_Row = tuple[str, _Queues, _Queues, _Perm, Int32]


class _Value(msgspec.Struct, array_like=True):
    cluster: str
    rows: list[_Row]
    proven: bool = False


_log = get_logger(__name__)


class Away:
    """Keeps the absent rows of `topics` in `kv`; takes over what is kept there."""

    def __init__(self, kv: KvStore, topics: TopicTable) -> None:
        self._kv = kv
        self._topics = topics
        for broker_name, absent in groups_in(kv.table.entries(ABSENT_QUEUES)).items():
            topics.away.add(broker_name, absent)
        self._kept = topics.away.changes

    async def keep_on(self) -> None:
        """Do so for ever; a disk that hangs holds up nothing else."""
        while True:
            await look(limits.SCAN_INTERVAL_S)
            await self.keep()

    async def keep(self) -> None:
        """Make what has changed durable. What can't be kept stays in memory, with a log line."""
        changes = self._topics.away.changes
        if changes == self._kept:
            return
        self._kept = changes
        wanted: dict[str, str] = {}
        for broker_name, absent in self._topics.away.groups().items():
            for number, value in enumerate(values_of(absent)):
                wanted[f"{broker_name}/{number}"] = value
                await checkpoint()
        known = self._kv.table.entries(ABSENT_QUEUES)
        try:
            for key, value in wanted.items():
                if known.get(key) != value:
                    await self._kv.put(ABSENT_QUEUES, key, value)
            for key in known.keys() - wanted.keys():
                await self._kv.delete(ABSENT_QUEUES, key)
        except DledgerError as error:
            _log.warning("queues of groups that are away are not kept", reason=str(error))


def values_of(absent: AbsentGroup) -> Iterator[str]:
    """A group as values of entries, none of them too long."""
    cluster = msgspec.json.encode(absent.cluster).decode()
    proven = msgspec.json.encode(absent.proven).decode()
    texts: list[str] = []
    size_bytes = 0
    for topic, row in dict(absent.topics).items():
        fields: _Row = (
            *(topic, row.read_queue_nums, row.write_queue_nums),
            *(row.perm, row.topic_sys_flag),
        )
        encoded = msgspec.json.encode(fields)
        size_bytes += len(encoded) + 1
        if texts and size_bytes > limits.ABSENT_VALUE_BYTES_MAX:
            yield f"[{cluster},[{','.join(texts)}],{proven}]"
            texts, size_bytes = [], len(encoded) + 1
        texts.append(encoded.decode())
    if texts:
        yield f"[{cluster},[{','.join(texts)}],{proven}]"


def groups_in(entries: Mapping[str, str]) -> dict[str, AbsentGroup]:
    """The groups that entries tell of, by their names."""
    found: dict[str, AbsentGroup] = {}
    for key, value in entries.items():
        broker_name = key.rpartition("/")[0]
        try:
            row = msgspec.json.decode(value, type=_Value)
        except msgspec.MsgspecError as error:
            _log.warning("queues of a group that is away can't be read", key=key, reason=str(error))
            continue
        group = found.setdefault(broker_name, AbsentGroup(row.cluster, {}, row.proven))
        group.topics.update(
            (topic, TopicConfig(topic, read, write, perm, flag))
            for topic, read, write, perm, flag in row.rows
        )
    return found
