"""Keeps offsets: with the brokers for the whole group, in a file of one's own, or nowhere.

The file is one consumer's: whoever has it open locks it, and it is replaced as a whole, so that a
crash leaves the old offsets or the new ones.
"""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from anyio import CancelScope, Lock, sleep

from dledger.errors import BadInput, RemotingError, RequestTimeout
from dledger.log.disk import Disk
from dledger.observe import get_logger
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.world import steady_s, unix_ms, world
from mqclient import limits
from mqclient.connection.answers import checked_offset
from mqclient.connection.leaders import LeaderFinder, log_failure
from mqclient.connection.lifetime import together
from mqclient.consuming.progress import Place
from mqclient.consuming.sharing.beginnings import ask_place, born_ms, is_younger, says
from mqclient.consuming.sharing.commits import Commits
from mqclient.consuming.sharing.locks import Locks
from mqclient.errors import ClientError, Refused

log = get_logger(__name__)

#: With the brokers, in a file, or nowhere.
KeepOffsets: TypeAlias = Literal["broker"] | str | os.PathLike[str] | None


class Offsets(ABC):
    """Keeps the offset at which to go on, by queue."""

    def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Begin to keep offsets, before the first `load`. Raises BadInput if the kept offsets can't
        be used."""

    def close(self) -> None:  # noqa: B027 - nor to close
        """End: no offset is asked for any more."""

    def stay_behind(self) -> None:  # noqa: B027
        """Release the kept offsets in a fork, and leave them to the other process."""

    @abstractmethod
    async def load(self, queue: MessageQueue) -> Place | None:
        """The offset, if there is one. Raises ClientError or RemotingError if nobody tells."""

    @abstractmethod
    async def is_younger(self, queue: MessageQueue) -> bool:
        """Whether a queue without an offset came into being after reading began. Raises the
        same."""

    @abstractmethod
    async def store(
        self, offsets: Mapping[MessageQueue, Place], timeout_s: float, *, last: bool = False
    ) -> Mapping[MessageQueue, Place]:
        """Store the offsets at which reading has come. Returns those that are kept now; failures
        are logged.

        The `last` time is before their queues are given up.
        """

    async def give_up(self, queues: Sequence[MessageQueue]) -> None:  # noqa: B027
        """Another member may read these queues: what was read of them is stored."""


async def _is_born_after(finder: LeaderFinder | None, queue: MessageQueue, began_ms: int) -> bool:
    """Whether a queue came into being after that time, at which one who reads alone began."""
    if finder is None:
        return False
    return born_ms(await ask_place(finder, limits.READERS_GROUP, queue)) > began_ms


class NoOffsets(Offsets):
    """Offsets that are not kept: each start reads as if it were the first."""

    def __init__(self, finder: LeaderFinder | None = None) -> None:
        self._finder = finder
        self._began_ms = 0

    def open(self) -> None:
        """Note when reading begins, for queues that are made later."""
        self._began_ms = unix_ms()

    async def load(self, queue: MessageQueue) -> Place | None:
        """Find no offset: nothing was ever stored."""
        return None

    async def is_younger(self, queue: MessageQueue) -> bool:
        """Whether it came into being since this was opened."""
        return await _is_born_after(self._finder, queue, self._began_ms)

    async def store(
        self, offsets: Mapping[MessageQueue, Place], timeout_s: float, *, last: bool = False
    ) -> Mapping[MessageQueue, Place]:
        """Store nothing; no queue has a kept offset."""
        return {}


class BrokerOffsets(Offsets):
    """The group's, in the replicated log. With `locks`, commits bear their tokens.

    A commit says whether it goes back behind what this member itself had from the group or
    committed: brokers let no other one take the group back. With a `patience_s` queues are shared:
    one that another member of ours has still, which is to give it up, is waited for so long.
    """

    def __init__(
        self,
        group: str,
        finder: LeaderFinder,
        locks: Locks | None = None,
        patience_s: float | None = None,
    ) -> None:
        self._group = group
        self._patience_s = patience_s
        self._finder = finder
        self._locks = locks
        self._known: dict[MessageQueue, int] = {}
        self._born_ms: dict[MessageQueue, int] = {}
        self._commits: defaultdict[MessageQueue, Commits] = defaultdict(Commits)
        #: By their last commit.
        self._given_up: set[MessageQueue] = set()

    async def load(self, queue: MessageQueue) -> Place | None:
        """The offset that the group committed, once no other member has the queue."""
        answer = await self._take(queue)
        self._born_ms[queue] = born_ms(answer)
        self._known.pop(queue, None)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        found = decode_header(QueryConsumerOffsetResponseHeader, answer)
        self._known[queue] = found.offset
        return Place(found.offset, found.life or 0)

    async def _take(self, queue: MessageQueue) -> Command:
        if self._patience_s is None:
            return await ask_place(self._finder, self._group, queue)
        deadline_s = steady_s() + self._patience_s
        while True:
            asked_s = steady_s()
            waits_s = min(limits.HANDOVER_HELD_S, max(0.0, deadline_s - asked_s))
            answer = await ask_place(self._finder, self._group, queue, takes=True, waits_s=waits_s)
            if not says(answer, "held"):
                return answer
            if steady_s() >= deadline_s:
                reason = f"its reader has not given it up within {self._patience_s:g} s"
                log.warning("queue taken over", group=self._group, queue=str(queue), reason=reason)
                return answer
            await sleep(max(0.0, asked_s + limits.HANDOVER_LOOK_S - steady_s()))

    async def give_up(self, queues: Sequence[MessageQueue]) -> None:
        """Tell the brokers; if one can't be reached, other members wait for as long as they
        have patience."""

        async def tell(queue: MessageQueue) -> None:
            with suppress(RemotingError, ClientError):
                await ask_place(self._finder, self._group, queue, takes=False)

        untold = [queue for queue in queues if queue not in self._given_up]
        self._given_up.difference_update(queues)
        if self._patience_s is not None:
            async with together() as tasks:
                for queue in untold:
                    tasks.start_soon(tell, queue)

    async def is_younger(self, queue: MessageQueue) -> bool:
        """By its own broker group it is not, or it would have an offset; but by another one."""
        return await is_younger(self._finder, self._group, queue, self._born_ms.get(queue, 0))

    async def store(
        self, offsets: Mapping[MessageQueue, Place], timeout_s: float, *, last: bool = False
    ) -> Mapping[MessageQueue, Place]:
        """Commit all of them at once; a queue whose leader is gone does not keep the others. The
        `last` commit of a queue tells brokers, too, that it is given up."""
        stored: dict[MessageQueue, Place] = {}
        gives_up = (last and self._patience_s is not None) or None

        async def commit(queue: MessageQueue, place: Place) -> None:
            send = partial(self._commit, queue, gives_up)
            newest = await self._commits[queue].commit(place, send, timeout_s)
            if newest is not None:
                stored[queue] = newest

        async with together() as tasks:
            for queue, place in offsets.items():
                tasks.start_soon(commit, queue, place)
        return stored

    async def _commit(
        self, queue: MessageQueue, gives_up: bool | None, place: Place, timeout_s: float
    ) -> bool:
        offset = place.offset
        header = UpdateConsumerOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            lock_token=None if self._locks is None else self._locks.leases.token(queue),
            sought_back=offset < self._known.get(queue, 0),
            life=place.life or None,
            gives_up=gives_up,
        )
        command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, encode_header(header))
        what = f"the commit of {queue} for group {self._group!r}"
        try:
            if timeout_s <= 0:
                raise RequestTimeout("the commit before it was not answered in time")
            # Though it may fail for us, it may be kept.
            self._known[queue] = max(offset, self._known.get(queue, 0))
            place_of = (queue.broker_name, queue.topic)
            answer = await self._finder.granted(what, *place_of, command, timeout_s)
        except (RemotingError, ClientError) as error:
            log_failure(
                log,
                "commit failed",
                error,
                group=self._group,
                topic=queue.topic,
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
            )
            fenced = isinstance(error, Refused) and error.code == ResponseCode.NOT_LOCK_OWNER
            if fenced and self._locks is not None:
                self._locks.lose(queue)
            return False
        self._known[queue] = offset
        if says(answer, "givenUp"):
            self._given_up.add(queue)
        return True


class _Row(msgspec.Struct, frozen=True):
    """An offset in the file."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int
    life: int = 0


class _File(msgspec.Struct, frozen=True):
    """The content of the file, as JSON."""

    schema: Literal[1]
    offsets: list[_Row]
    began_ms: int = 0


class FileOffsets(Offsets):
    """Offsets in a JSON file of this consumer alone."""

    def __init__(self, path: str | os.PathLike[str], finder: LeaderFinder | None = None) -> None:
        self._path = Path(path)
        self._finder = finder
        self._began_ms = 0
        self._known: dict[MessageQueue, Place] = {}
        self._lock = -1
        self._writing = Lock()

    def open(self) -> None:
        """Read the file, if it is there, and keep others away from it."""
        lock_path = self._path.with_name(self._path.name + ".lock")
        try:
            self._lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_new = not self._path.exists()
            self._began_ms = unix_ms()
            self._known = self._read()
            if is_new:
                self._write(self._known)
        except BlockingIOError as error:
            self.close()
            raise BadInput(
                f"offsets={str(self._path)!r} is kept by another consumer that runs now: name "
                "another file for this one"
            ) from error
        except OSError as error:
            self.close()
            raise BadInput(f"offsets={str(self._path)!r} can't be used: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Others may have the file, though a child of this process may have a copy of the lock."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self.stay_behind()

    def stay_behind(self) -> None:
        """Close this copy of the lock: it ends when all copies are closed."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def load(self, queue: MessageQueue) -> Place | None:
        """The offset that was kept."""
        return self._known.get(queue)

    async def is_younger(self, queue: MessageQueue) -> bool:
        """Whether it came into being after the file."""
        return await _is_born_after(self._finder, queue, self._began_ms)

    async def store(
        self, offsets: Mapping[MessageQueue, Place], timeout_s: float, *, last: bool = False
    ) -> Mapping[MessageQueue, Place]:
        """Replace the file; on the disk when this returns, however long that takes."""
        if not offsets:
            return {}
        with CancelScope(shield=True):
            async with self._writing:
                known = {**self._known, **offsets}
                try:
                    await world().in_thread(self._write, known)
                except OSError as error:
                    log.warning("offsets not kept", path=str(self._path), reason=str(error))
                    return {}
                self._known = known
        return offsets

    def _read(self) -> dict[MessageQueue, Place]:
        if not self._path.exists():
            return {}
        if self._path.stat().st_size > limits.OFFSETS_FILE_BYTES_MAX:
            raise self._unreadable(f"it is larger than {limits.OFFSETS_FILE_BYTES_MAX} bytes")
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable(str(error)) from error
        self._began_ms = content.began_ms
        return {
            MessageQueue(row.topic, row.broker_name, row.queue_id): Place(
                checked_offset(row.offset, f"an offset in {self._path}"), row.life
            )
            for row in content.offsets
        }

    def _unreadable(self, reason: str) -> BadInput:
        return BadInput(
            f"offsets={str(self._path)!r} is not a file of offsets: {reason}. Name another one; or "
            "remove it, to begin where consume_from says"
        )

    def _write(self, known: Mapping[MessageQueue, Place]) -> None:
        rows = [
            _Row(queue.topic, queue.broker_name, queue.queue_id, *place)
            for queue, place in sorted(known.items())
        ]
        Disk().replace(
            self._path, msgspec.json.format(msgspec.json.encode(_File(1, rows, self._began_ms)))
        )
