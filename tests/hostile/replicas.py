"""A broker group in one thread and on virtual time, for strangers to try.

One replica leads: the real broker core behind the real connection code, on one end of a socket pair
whose other end is the stranger's. Two more replicas apply what it commits: one that never stops,
and one that is stopped and started from its files at every look. A fourth takes over the state of
the third, as a replica does that can't replay all of the log. `agree` compares everything that
replicas must agree on; `serves` has an honest client send and read.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from dledger.log.entry import Entry
from dledger.net import Connection
from dledger.net.link import Link
from dledger.net.quota import ConnectionQuota
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.framing import FrameDecoder
from dledger.remoting.headers import RegisterProducerResponseHeader, decode_header
from dledger.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from dledger.slices import drained
from dledger.testing.local import LocalLedger
from mqbroker.broker import Broker
from mqbroker.config import BrokerConfig
from mqbroker.requests.core import Core
from mqbroker.state.machine import Machine
from mqbroker.testing.leading import save
from mqbroker.testing.pictured import ends_of, saved_state_of
from mqbroker.testing.requests import TOPIC, pull_request, records, send_request, topic_request

NOW_MS = 1_790_000_000_000
CANARY = "Canary"
QUEUES = 4


def state_of(machine: Machine) -> dict[str, object]:
    """State that replicas must agree on: the tables, the units of all queues, the key index."""
    state = msgspec.to_builtins(saved_state_of(machine))
    state["units"] = {
        (topic, queue_id): (queue.begin, queue.read(queue.begin, queue.end).tobytes())
        for topic, (_, ends) in sorted(ends_of(machine.queues).items())
        for queue_id in sorted(ends)
        if (queue := machine.queues.get(topic, queue_id)) is not None
    }
    return state


class Stranger:
    """The other end of a connection to the leader."""

    def __init__(self, ours: socket.socket, connection: Connection) -> None:
        self.connection = connection
        self._socket = ours
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)

    async def write(self, data: bytes) -> list[Command]:
        """Send bytes; what comes back until the leader has nothing more to do."""
        with suppress(OSError):
            self._socket.send(data)
        return await self.answers()

    async def answers(self) -> list[Command]:
        """Commands that have come so far."""
        await trio.testing.wait_all_tasks_blocked()
        with suppress(BlockingIOError, ConnectionResetError):
            while data := self._socket.recv(1 << 20):
                self._decoder.feed(data)
        return list(self._decoder.frames())

    async def tell(self, request: Command) -> Command | None:
        """The answer to a request, if there is one."""
        request.opaque = next(self._opaques)
        found = await self.write(b"".join(encode_frame(request)))
        return next((answer for answer in found if answer.opaque == request.opaque), None)

    async def ask(self, request: Command) -> Command:
        """The answer to a request, which must have one."""
        answer = await self.tell(request)
        assert answer is not None, f"no answer to {request}"
        return answer

    async def do(self, request: Command) -> Command:
        """The answer to a request, which must succeed."""
        answer = await self.ask(request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    def close(self) -> None:
        self._socket.close()


class Group:
    """Replicas of a broker group, made by `group`."""

    def __init__(
        self,
        directory: Path,
        nursery: trio.Nursery,
        clock: trio.testing.MockClock,
        **settings: Any,
    ):
        for name in "abcd":
            (directory / name).mkdir(parents=True)
        self.machine = Machine(directory / "a")
        self.machine.restore()
        self.ledger = LocalLedger(self.machine)
        store = str(directory / "a" / "store")
        config = BrokerConfig(store_path_root_dir=store, **settings)
        self.core = Core(
            config,
            self.machine,
            self.ledger,
            clock_ms=lambda: NOW_MS + int(trio.current_time() * 1000),
            clock_s=trio.current_time,
        )
        self.broker = Broker(self.core)
        self._directory = directory
        self._steady, self._stopping = Machine(directory / "b"), Machine(directory / "c")
        self._nursery = nursery
        self._clock = clock
        self._ids = itertools.count(1)
        self._quota = ConnectionQuota()
        self._strangers: list[Stranger] = []
        self._looks = 0
        self._acknowledged = 0
        nursery.start_soon(self.broker.run)

    def connect(self, host: str = "127.0.0.1") -> Stranger:
        """A connection to the leader, from an address."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        number = next(self._ids)
        peer, faults = (host, 1024 + number), self.core.faults
        connection = Connection(number, peer, Link(theirs), self._quota, 64, faults)
        self._nursery.start_soon(self._serve, connection)
        self._strangers.append(Stranger(ours, connection))
        return self._strangers[-1]

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve(self.broker.handler)
        except Exception as error:  # as the server does
            self.core.faults.note("connection failed", error, peer=connection.peer)

    async def pass_time(self, seconds: float) -> None:
        """Pass time, so that timers ring: commits are gathered, pulls are held, messages wait."""
        await trio.testing.wait_all_tasks_blocked()
        self._clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()

    def commit_raw(self, kind: int, body: bytes) -> Entry:
        """Commit an entry of any content behind the leader's back."""
        self.ledger.append_nowait(body, kind, lambda _: None)
        return next(self.ledger.entries(self.machine.applied_index))

    async def begin(self) -> tuple[list[int], list[str], list[int]]:
        """Store a message of each kind, and name a producer; their positions, a recall handle, its
        epoch. Always the same."""
        await self.serves()
        honest = self.connect()
        kinds = (
            "",
            "TRAN_MSG\x01true\x02PGROUP\x01P\x02",
            "TIMER_DELAY_MS\x0120000\x02",
            "DELAY\x011",
        )
        handles = []
        for number, properties in enumerate(kinds):
            key = f"UNIQ_KEY\x01k{number}\x02"
            answer = await honest.ask(send_request(b"kept", e="0", i=properties + "\x02" + key))
            handles.append(str(answer.ext.get("recallHandle", "")))
        naming = {"producerName": "named", "instance": "a"}
        named = await honest.ask(Command(RequestCode.REGISTER_PRODUCER, naming))
        epochs = [decode_header(RegisterProducerResponseHeader, named).epoch]
        honest.close()
        places = (TOPIC, HALF_TOPIC, TIMER_TOPIC, SCHEDULE_TOPIC)
        found = [self.machine.queues.get(topic, 0) for topic in places]
        units = [queue.read(0, 1)["position"].tolist() for queue in found if queue is not None]
        positions = [position for unit in units for position in unit]
        return positions, list(filter(None, handles)), epochs

    async def serves(self, queues: int = QUEUES) -> None:
        """An honest client is answered: in a topic of its own, and in the stranger's queues."""
        honest = self.connect()
        for name, count in ((CANARY, 1), (TOPIC, queues)):
            await honest.do(topic_request(name, QUEUES))
            for queue_id in range(count):
                await self._send(honest, name, queue_id)
        honest.close()
        await trio.testing.wait_all_tasks_blocked()

    async def _send(self, honest: Stranger, topic: str, queue_id: int) -> None:
        self._acknowledged += 1
        end = self.machine.queues.end(topic, queue_id)
        body = f"{topic} {self._acknowledged}".encode()
        values = ("P", topic, "TBW102", "4", str(queue_id), "0", "5", "0", "")
        ext: dict[str, ExtValue] = dict(zip("abcdefghi", values, strict=True))
        code, encoding = RequestCode.SEND_MESSAGE_V2, HeaderEncoding.JSON
        sent = await honest.do(Command(code, ext, body, encoding=encoding))
        assert (sent.ext["queueId"], sent.ext["queueOffset"]) == (str(queue_id), str(end))
        got = await honest.do(pull_request(queue_id, end, topic=topic, consumerGroup="Honest"))
        assert [bytes(record.body) for record in records(got)] == [body]

    def agree(self) -> None:
        """Assert that replicas hold the same, also after a restart, with nothing half done."""
        self._looks += 1
        steady, stopping = self._steady, self._stopping
        if self._looks % 3 == 0 and stopping.applied_index:
            save(stopping)
        stopping.close()
        stopping = self._stopping = Machine(self._directory / "c")
        assert stopping.restore() is None
        for replica in (steady, stopping):
            for entry in self.ledger.entries(replica.applied_index + 1):
                replica.apply(entry)
        expected = state_of(self.machine)
        assert state_of(steady) == expected
        assert state_of(stopping) == expected
        self._given_the_state(expected)
        for (topic, queue_id), end in self.core.assignments._next.items():
            assert self.machine.queues.end(topic, queue_id) == end, (topic, queue_id)
        assert not [*self.core.appender._batches, *self.core.appender._sends]
        assert self.core.definitions._topics_coming == {}
        assert self.core.definitions._groups_coming == {}

    def _given_the_state(self, expected: dict[str, object]) -> None:
        """A replica that is given the state, and makes queues and keys from the entries again."""
        given = Machine(self._directory / "d" / str(self._looks))
        drained(given.install(*drained(self._steady.capture()), 1))  # this ledger drops nothing
        for entry in self.ledger.entries(1):
            given.apply(entry)
        found = state_of(given)
        for volatile in ("ahead_index", "keys"):
            found[volatile] = expected[volatile]
        assert found == expected
        given.close()

    def close(self) -> None:
        """Close the sockets and the files."""
        for stranger in self._strangers:
            stranger.close()
        for machine in (self.machine, self._steady, self._stopping):
            machine.close()


@asynccontextmanager
async def group(directory: Path, **settings: Any) -> AsyncIterator[Group]:
    """A group that serves until the block is left; call it on a `MockClock`."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    with ExitStack() as files:
        async with trio.open_nursery() as nursery:
            made = Group(directory, nursery, clock, **settings)
            files.callback(made.close)
            yield made
            nursery.cancel_scope.cancel()
