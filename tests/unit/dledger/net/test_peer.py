"""Peers, the asking end of a connection, under trio and asyncio, with a server played by hand."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from loops import both_loops

from dledger.errors import (
    Busy,
    ConnectFailed,
    ConnectionLost,
    FrameError,
    RemotingError,
    RequestTimeout,
)
from dledger.limits import FRAME_BYTES_MAX, MIB
from dledger.net import Peer, connect_peer
from dledger.remoting.codec import encode_frame
from dledger.remoting.command import FLAG_ONEWAY, Command
from dledger.remoting.framing import FrameDecoder
from dledger.testing.logs import capture_logs


class Server:
    """A server whose every move a test makes."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.accepted: socket.socket | None = None
        self.decoder = FrameDecoder()
        self.received: list[Command] = []
        self.chunks = 0

    @property
    def connection(self) -> socket.socket:
        if self.accepted is None:
            self.accepted, _ = self.listener.accept()
        return self.accepted

    async def receive(self) -> Command:
        while not self.received:
            await anyio.wait_readable(self.connection)
            self.decoder.feed(self.connection.recv(MIB))
            self.chunks += 1
            self.received += self.decoder.frames()
        return self.received.pop(0)

    def peer(self) -> AbstractAsyncContextManager[Peer]:
        return connect_peer("127.0.0.1", self.port)

    def send(self, *commands: Command) -> None:
        self.connection.sendall(b"".join(piece for c in commands for piece in encode_frame(c)))

    def close(self) -> None:
        self.listener.close()
        if self.accepted is not None:
            self.accepted.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@both_loops
async def test_a_request_gets_the_response_with_its_opaque(server: Server) -> None:
    """Responses may come in any order, and with any code."""
    async with server.peer() as peer:
        codes: dict[int, int] = {}

        async def ask(code: int) -> None:
            codes[code] = (await peer.request(Command(code), timeout_s=5)).code

        async with anyio.create_task_group() as tasks:
            for code in (1, 2, 3):
                tasks.start_soon(ask, code)
            requests = [await server.receive() for _ in range(3)]
            server.send(*(request.reply(request.code * 10) for request in reversed(requests)))
        assert codes == {1: 10, 2: 20, 3: 30}


@both_loops
async def test_what_is_sent_in_one_turn_leaves_in_one_piece(server: Server) -> None:
    """A hundred small requests cost one system call, not a hundred."""
    async with server.peer() as peer:
        for number in range(100):
            peer.send_oneway(Command(number))
        received = [await server.receive() for _ in range(100)]
        assert [request.code for request in received] == list(range(100))
        assert all(request.flag == FLAG_ONEWAY for request in received)
        assert server.chunks == 1


@both_loops
async def test_a_request_that_is_not_answered_in_time_has_an_unknown_outcome(
    server: Server,
) -> None:
    """A late answer is dropped, and the connection goes on."""
    async with server.peer() as peer:
        with pytest.raises(RequestTimeout, match=r"request 7 within 0.02 s") as caught:
            await peer.request(Command(7), timeout_s=0.02)
        assert not caught.value.definite
        late = await server.receive()
        server.send(late.reply(0))
        await round_trip(server, peer)


async def round_trip(server: Server, peer: Peer) -> None:
    """Ask something and answer it."""

    async def answer() -> None:
        server.send((await server.receive()).reply(42))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        assert (await peer.request(Command(1), timeout_s=5)).code == 42


@both_loops
@pytest.mark.parametrize("how", ["closed", "reset", "garbage", "by us"])
async def test_a_broken_connection_ends_everything_in_flight_at_once(
    server: Server, how: str
) -> None:
    """Each request in flight ends once with ConnectionLost: its outcome is unknown."""
    async with server.peer() as peer:
        results: list[Command | RemotingError] = []
        for _ in range(3):
            peer.request_nowait(Command(1), results.append)
            await server.receive()
        if how == "closed":
            server.connection.shutdown(socket.SHUT_WR)
        elif how == "reset":
            linger = b"\1\0\0\0\0\0\0\0"
            server.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            server.connection.close()
        elif how == "garbage":
            server.connection.sendall(b"\xff" * 8)
        else:
            peer.close("the route changed")
        await peer.wait_closed()
        assert peer.closed
        assert [type(result) for result in results] == [ConnectionLost] * 3
        assert not any(result.definite for result in results if isinstance(result, RemotingError))
        with pytest.raises(ConnectFailed, match="not sent") as caught:
            await peer.request(Command(1), timeout_s=5)
        assert caught.value.definite
        assert len(results) == 3


@both_loops
async def test_what_a_broken_connection_never_took_was_certainly_not_sent(server: Server) -> None:
    """The first request may have been heard; those behind it were never sent."""
    async with server.peer() as peer:
        results: list[Command | RemotingError] = []
        peer.request_nowait(Command(1), results.append)
        await server.receive()
        linger = b"\1\0\0\0\0\0\0\0"
        server.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        server.connection.close()
        peer.request_nowait(Command(2), results.append)
        peer.request_nowait(Command(3), results.append)
        await peer.wait_closed()
        assert [type(result) for result in results] == [ConnectionLost, *[ConnectFailed] * 2]


@both_loops
async def test_a_waiting_request_is_told_when_the_connection_breaks(server: Server) -> None:
    """A caller of `request` is told of a broken connection at once, before its deadline."""
    async with server.peer() as peer:

        async def break_it() -> None:
            await server.receive()
            server.connection.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(break_it)
            with pytest.raises(ConnectionLost, match="closed by the other end"):
                await peer.request(Command(1), timeout_s=9)


@both_loops
async def test_nobody_there_is_a_definite_failure() -> None:
    """A refused connection is a definite failure: another server may be asked."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}: .* refused") as caught:
        async with connect_peer("127.0.0.1", port):
            pass
    assert caught.value.definite
    with pytest.raises(ConnectFailed, match="not a valid host"):
        async with connect_peer("no..name", port):
            pass
    with pytest.raises(ConnectFailed, match="port 99999 is not within"):
        async with connect_peer("127.0.0.1", 99_999):
            pass


@both_loops
async def test_what_the_server_asks_is_answered_by_the_callback(server: Server) -> None:
    """A broker's notices and questions come over the same connection."""
    asked: list[int] = []

    def on_request(request: Command) -> Command | None:
        asked.append(request.code)
        if request.code == 13:
            raise RuntimeError("a bug")
        return None if request.code == 12 else request.reply(0, remark="mine")

    async with connect_peer("127.0.0.1", server.port, on_request=on_request):
        server.send(
            Command(10, opaque=1, flag=FLAG_ONEWAY),
            Command(11, opaque=2),
            Command(12, opaque=3),
        )
        answer = await server.receive()
        assert (answer.opaque, answer.remark) == (2, "mine")
        with capture_logs():
            server.send(Command(13, opaque=4))
            answer = await server.receive()
        assert (answer.opaque, answer.code, answer.remark) == (4, 1, "a bug")
    assert asked == [10, 11, 12, 13]


@both_loops
async def test_without_a_callback_the_servers_questions_are_not_supported(server: Server) -> None:
    """A server's question gets code 3, so that the server need not wait for its timeout."""
    async with server.peer():
        server.send(Command(307, opaque=1))
        assert (await server.receive()).code == 3


@both_loops
async def test_a_bug_in_one_callback_takes_nobody_elses_answer(server: Server) -> None:
    """A callback that raises is logged, and the connection goes on."""
    async with server.peer() as peer:

        def crash(_result: Command | RemotingError) -> None:
            raise RuntimeError("a bug")

        with capture_logs() as logs:
            peer.request_nowait(Command(1), crash)
            server.send((await server.receive()).reply(0))
            await round_trip(server, peer)
        assert [log["event"] for log in logs] == ["response callback failed"]


@both_loops
async def test_the_blocks_own_exception_comes_out_as_it_is(server: Server) -> None:
    """A block's exception comes without an ExceptionGroup around it."""
    with pytest.raises(LookupError, match="mine"):
        async with server.peer():
            raise LookupError("mine")


@both_loops
async def test_a_peer_in_a_task_group_never_fails_it(server: Server) -> None:
    """A peer whose connection fails leaves its task group alone; its requests fail."""
    async with anyio.create_task_group() as tasks:
        peer = await Peer.open(tasks, "127.0.0.1", server.port)
        server.connection.sendall(b"\xff" * 8)
        await peer.wait_closed()
        another = await Peer.open(tasks, "127.0.0.1", server.port)
        results: list[Command | RemotingError] = []
        another.request_nowait(Command(1), results.append)
        tasks.cancel_scope.cancel()
    assert [type(result) for result in results] == [ConnectionLost]


@both_loops
async def test_a_server_that_does_not_read_makes_the_peer_busy(server: Server) -> None:
    """A full send buffer raises Busy before anything of the request is sent."""
    async with server.peer() as peer:

        def send_much() -> None:
            for _ in range(20):
                peer.send_oneway(Command(1, body=bytes(8 * MIB)))

        with pytest.raises(Busy, match="wait to be sent") as caught:
            send_much()
        assert caught.value.definite
        assert not peer.closed


@both_loops
async def test_what_can_not_be_encoded_is_refused_and_leaves_no_trace(server: Server) -> None:
    """A request that can't be encoded is refused, and the connection is as it was."""
    async with server.peer() as peer:
        results: list[Command | RemotingError] = []
        with pytest.raises(FrameError, match="above"):
            peer.request_nowait(Command(1, body=bytes(FRAME_BYTES_MAX)), results.append)
        await round_trip(server, peer)
        assert results == []


@both_loops
async def test_large_frames_pass_both_ways_at_once(server: Server) -> None:
    """Large frames pass both ways at once, with neither end waiting for the other."""
    async with server.peer() as peer:
        body = bytes(range(256)) * (MIB // 64)
        server.connection.setblocking(False)
        answers: list[Command | RemotingError] = []
        complete = anyio.Event()

        def on_response(answer: Command | RemotingError) -> None:
            answers.append(answer)
            if len(answers) == 3:
                complete.set()

        for _ in range(3):
            peer.request_nowait(Command(1, body=body), on_response)
        requests = [await server.receive() for _ in range(3)]
        assert all(request.body == body for request in requests)
        pending = memoryview(
            b"".join(p for r in requests for p in encode_frame(r.reply(0, body=r.body)))
        )
        while pending:
            await anyio.wait_writable(server.connection)
            pending = pending[server.connection.send(pending) :]
        await complete.wait()
        assert all(isinstance(a, Command) and a.body == body for a in answers)
