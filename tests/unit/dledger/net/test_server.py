"""The server: its answers, and the bounds of a connection. Real sockets, virtual time."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from dledger.errors import BadInput
from dledger.net import Connection, Faults, ServerLimits, serve_remoting
from dledger.net.quota import ConnectionQuota
from dledger.remoting.codec import encode_frame
from dledger.remoting.command import FLAG_ONEWAY, Command, HeaderEncoding
from dledger.remoting.framing import FrameDecoder
from dledger.remoting.unavailable import OUTCOME, OUTCOME_UNKNOWN
from dledger.testing.logs import capture_logs

Answer = Command | Awaitable[Command | None] | None
ECHO, LATER, REFUSE, CRASH, BY_HAND, NEVER, UNENCODABLE, CRASH_LATER = range(1, 9)


class Handler:
    """Answers each code in another way, and keeps a diary."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.gone: list[Connection] = []
        self.requests: list[Command] = []
        self.release = trio.Event()
        self.running = 0
        self.broken = False

    def __call__(self, request: Command, connection: Connection) -> Answer:
        self.requests.append(request)
        answers: dict[int, Callable[[], Answer]] = {
            ECHO: lambda: request.reply(0, body=request.body),
            LATER: lambda: self.later(request),
            REFUSE: lambda: self.fail(BadInput("the field 'topic' is empty")),
            CRASH: lambda: self.fail(RuntimeError("a bug")),
            BY_HAND: lambda: connection.send(request.reply(5)),
            NEVER: lambda: None,
            UNENCODABLE: lambda: request.reply(0, ext={"list": [1]}),
            CRASH_LATER: self.crash_later,
        }
        return answers[request.code]()

    def fail(self, error: Exception) -> Answer:
        raise error

    async def later(self, request: Command) -> Command:
        self.running += 1
        await self.release.wait()
        return request.reply(0)

    async def crash_later(self) -> Command:
        raise RuntimeError("a bug")

    def connected(self, connection: Connection) -> None:
        self.connections.append(connection)
        if self.broken:
            raise RuntimeError("a bug")

    def disconnected(self, connection: Connection) -> None:
        self.gone.append(connection)


class Client:
    """The other end, by hand."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.decoder = FrameDecoder()
        self.received: list[Command] = []

    async def send(self, *commands: Command) -> None:
        await self.stream.send_all(b"".join(p for c in commands for p in encode_frame(c)))

    async def receive(self) -> Command:
        while not self.received:
            data = await self.stream.receive_some()
            assert data, "closed by the server"
            self.decoder.feed(data)
            self.received += self.decoder.frames()
        return self.received.pop(0)

    async def ask(self, code: int, **fields: object) -> Command:
        await self.send(Command(code, **fields))  # type: ignore[arg-type]
        return await self.receive()

    async def until_closed(self) -> None:
        """Return when the server has closed this connection, politely or by a reset."""
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass


class Server:
    def __init__(self, handler: Handler, port: int, faults: Faults) -> None:
        self.handler = handler
        self.faults = faults
        self.port = port
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        self.clients.append(Client(await trio.open_tcp_stream("127.0.0.1", self.port)))
        return self.clients[-1]

    async def refuses(self) -> None:
        """Connect, and return when that is refused: a reset may come before the connect is done."""
        with suppress(OSError):
            await (await self.connect()).until_closed()


@asynccontextmanager
async def serving(quota: ConnectionQuota | None = None, **limits: float) -> AsyncIterator[Server]:
    handler, faults = Handler(), Faults()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(
            lambda task_status: serve_remoting(
                handler,
                "127.0.0.1",
                0,
                limits=ServerLimits(**limits),  # type: ignore[arg-type]
                faults=faults,
                quota=quota,
                task_status=task_status,
            )
        )
        server = Server(handler, port, faults)
        yield server
        for client in server.clients:
            client.stream.socket.close()
        nursery.cancel_scope.cancel()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.mark.parametrize("encoding", HeaderEncoding)
async def test_a_request_is_answered_in_its_own_encoding(
    server: Server, encoding: HeaderEncoding
) -> None:
    """An answer has the encoding of its request, frame by frame."""
    client = await server.connect()
    answer = await client.ask(ECHO, body=b"hi", opaque=9, encoding=encoding)
    assert (answer.code, answer.body, answer.opaque) == (0, b"hi", 9)
    assert (answer.encoding, answer.is_response) == (encoding, True)


async def test_answers_come_in_the_order_in_which_they_are_ready(server: Server) -> None:
    """A slow request holds up nobody; matching is by opaque."""
    client = await server.connect()
    await client.send(Command(LATER, opaque=1), Command(ECHO, opaque=2))
    assert (await client.receive()).opaque == 2
    server.handler.release.set()
    assert (await client.receive()).opaque == 1


async def test_a_handler_may_answer_by_hand(server: Server) -> None:
    """A handler may answer later, as for long polls and replicated appends."""
    client = await server.connect()
    assert (await client.ask(BY_HAND)).code == 5


@pytest.mark.parametrize("code", [ECHO, LATER, REFUSE])
async def test_a_one_way_request_is_never_answered(server: Server, code: int) -> None:
    """A one-way request is never answered, whatever its handler returns or raises."""
    server.handler.release.set()
    client = await server.connect()
    await client.send(Command(code, opaque=1, flag=FLAG_ONEWAY))
    assert (await client.ask(ECHO, opaque=2)).opaque == 2


async def test_a_refusal_is_answered_with_code_1_and_its_text(server: Server) -> None:
    """A refused request is answered and logged, and the connection goes on."""
    client = await server.connect()
    with capture_logs() as logs:
        answer = await client.ask(REFUSE)
    assert (answer.code, answer.remark) == (1, "the field 'topic' is empty")
    assert OUTCOME not in answer.ext
    assert (logs[0]["event"], logs[0]["code"]) == ("request refused", REFUSE)
    assert (await client.ask(ECHO)).code == 0


@pytest.mark.parametrize("code", [CRASH, CRASH_LATER])
@pytest.mark.parametrize("is_oneway", [False, True])
async def test_a_fault_that_nobody_foresaw_costs_the_connection(
    server: Server, code: int, is_oneway: bool
) -> None:
    """An unexpected exception is answered, logged and counted, and ends its connection alone."""
    good, bad = await server.connect(), await server.connect()
    await good.ask(ECHO)
    with capture_logs() as logs:
        await bad.send(Command(code, opaque=7, flag=FLAG_ONEWAY if is_oneway else 0))
        if not is_oneway:
            answer = await bad.receive()
            assert (answer.code, answer.remark) == (1, "RuntimeError: a bug")
            assert answer.ext == {OUTCOME: OUTCOME_UNKNOWN}
        await bad.until_closed()
    assert logs[0]["event"] == "request handler failed"
    assert (logs[0]["code"], logs[0]["opaque"]) == (code, 7)
    assert logs[0]["peer"] == bad.stream.socket.getsockname()
    assert isinstance(logs[0]["exc_info"], RuntimeError)
    assert server.faults.count == 1
    assert (await good.ask(ECHO)).code == 0


async def test_an_answer_that_can_not_be_encoded_becomes_code_1(server: Server) -> None:
    """An answer that can't be encoded becomes code 1, so that no client waits in vain."""
    client = await server.connect()
    answer = await client.ask(UNENCODABLE, encoding=HeaderEncoding.JSON)
    assert answer.code == 1
    assert "'list'" in (answer.remark or "")


async def test_a_notice_goes_out_one_way_in_the_encoding_that_the_client_uses(
    server: Server,
) -> None:
    """A notice has its client's encoding, for a stock client must read it."""
    client = await server.connect()
    await client.ask(ECHO, encoding=HeaderEncoding.ROCKETMQ)
    server.handler.connections[0].send_oneway_request(Command(40, {"consumerGroup": "G"}))
    notice = await client.receive()
    assert (notice.code, notice.ext, notice.flag) == (40, {"consumerGroup": "G"}, FLAG_ONEWAY)
    assert notice.encoding is HeaderEncoding.ROCKETMQ


@pytest.mark.parametrize(
    "garbage",
    [b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", struct.pack(">II", 8, 9 << 24) + b"abcd"],
)
async def test_garbage_closes_its_own_connection_and_no_other(
    server: Server, garbage: bytes
) -> None:
    """Garbage closes its own connection alone, and the log has the reason."""
    good, bad = await server.connect(), await server.connect()
    await good.ask(ECHO)
    with capture_logs() as logs:
        await bad.stream.send_all(garbage)
        await bad.until_closed()
    (event,) = (log for log in logs if log["event"] == "connection closed")
    assert any(what in event["reason"] for what in ("above", "encoding", "HTTP"))
    assert (await good.ask(ECHO)).code == 0


async def test_requests_before_the_garbage_are_answered(server: Server) -> None:
    """Requests before the garbage are answered."""
    client = await server.connect()
    frames = b"".join(encode_frame(Command(ECHO, opaque=5)))
    await client.stream.send_all(frames + b"\xff" * 8)
    assert (await client.receive()).opaque == 5
    await client.until_closed()


async def test_a_client_that_does_not_read_is_closed_at_the_bound() -> None:
    """A connection whose answers wait up to the bound is closed, to spare the memory."""
    async with serving(send_buffer_bytes_max=1_000_000) as server:
        client = await server.connect()
        requests = [Command(ECHO, body=bytes(100_000)) for _ in range(1000)]
        with capture_logs() as logs, pytest.raises(trio.BrokenResourceError):
            await client.send(*requests)
        assert any("does not read" in log.get("reason", "") for log in logs)


async def test_reading_pauses_while_too_many_requests_are_in_flight() -> None:
    """A client can't start more tasks than the bound, and loses nothing."""
    async with serving(requests_in_flight_per_connection_max=3) as server:
        client = await server.connect()
        await client.send(*(Command(LATER, opaque=n) for n in range(10)))
        await client.send(Command(ECHO, opaque=99))
        while server.handler.running < 3:
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(server.handler.requests) == 3
        server.handler.release.set()
        assert sorted([(await client.receive()).opaque for _ in range(11)]) == [*range(10), 99]


async def pass_time(clock: trio.testing.MockClock, seconds: float) -> None:
    """Pass virtual time in steps that the server's sweeper sees."""
    for _ in range(int(seconds * 2)):
        clock.jump(0.5)
        await trio.testing.wait_all_tasks_blocked()


async def test_a_frame_must_be_complete_in_time(
    server: Server, mock_clock: trio.testing.MockClock
) -> None:
    """A frame that is incomplete after 30 s closes its connection; whole frames keep it open."""
    slow, good = await server.connect(), await server.connect()
    frame = b"".join(encode_frame(Command(ECHO, body=b"x" * 100)))
    with capture_logs() as logs:
        for position in range(29):
            await slow.stream.send_all(frame[position : position + 1])
            await good.ask(ECHO)
            await pass_time(mock_clock, 1)
        assert not server.handler.gone
        await pass_time(mock_clock, 3)
        await slow.until_closed()
    (event,) = (log for log in logs if log["event"] == "connection closed")
    assert event["reason"] == "a frame is not complete after 30.0 s"
    assert (await good.ask(ECHO)).code == 0


async def test_a_silent_connection_is_closed_in_time(
    server: Server, mock_clock: trio.testing.MockClock
) -> None:
    """A connection is closed after 120 s without a byte in either direction."""
    silent, busy, notified = [await server.connect() for _ in range(3)]
    await busy.ask(ECHO)
    await notified.ask(ECHO)
    for _ in range(3):
        await pass_time(mock_clock, 41)
        await busy.ask(ECHO)
        server.handler.connections[2].send_oneway_request(Command(40))
    await silent.until_closed()
    assert (await busy.ask(ECHO)).code == 0
    assert (await notified.receive()).code == 40


async def test_connections_above_the_bound_are_refused(mock_clock: trio.testing.MockClock) -> None:
    """Connections within the bound stay; a log line a second counts the refused ones."""
    async with serving(ConnectionQuota(places_max=2)) as server:
        first, second = await server.connect(), await server.connect()
        await first.ask(ECHO)
        await second.ask(ECHO)
        with capture_logs() as logs:
            for _ in range(5):
                await server.refuses()
            await pass_time(mock_clock, 2)
        refusals = [log for log in logs if log["event"] == "connections refused"]
        assert sum(log["count"] for log in refusals) == 5
        assert len(refusals) <= 2

        await first.stream.aclose()
        while not server.handler.gone:
            await trio.testing.wait_all_tasks_blocked()
        third = await server.connect()
        assert (await third.ask(ECHO)).code == 0


async def test_every_end_of_a_connection_is_told_once() -> None:
    """Each connection's end is told once, whether client, server or a stop caused it."""
    async with serving() as server:
        handler = server.handler
        clients = [await server.connect() for _ in range(3)]
        for client in clients:
            await client.ask(ECHO)
        await clients[0].stream.aclose()
        handler.connections[1].close("enough")
        handler.connections[1].close("enough, again")
        await clients[1].until_closed()
        handler.connections[1].send(Command(ECHO))  # dropped
    assert sorted(c.id for c in handler.gone) == sorted(c.id for c in handler.connections)
    assert all(connection.closed for connection in handler.connections)


async def test_a_bug_at_a_connections_start_or_end_is_not_the_servers_end(server: Server) -> None:
    """A bug at a connection's start or end leaves the others served."""
    good = await server.connect()
    await good.ask(ECHO)
    server.handler.broken = True
    with capture_logs() as logs:
        await server.refuses()
    assert [log["event"] for log in logs] == ["connection failed"]
    assert (await good.ask(ECHO)).code == 0


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    """A taken port is an error with its number, before anything is served."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=str(port)):
            await serve_remoting(Handler(), "127.0.0.1", port)
