"""Strangers at a port that takes TLS: half handshakes, other protocols, garbage, floods."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio

from dledger.errors import ConnectFailed, ConnectionLost, RemotingError
from dledger.limits import (
    CONNECTION_BYTES,
    LOOP_STALL_S,
    TLS_CONNECTION_BYTES,
    TLS_HANDSHAKE_BYTES_MAX,
    TLS_HANDSHAKE_S,
)
from dledger.net import Connection, Handler, connect_peer, serve_remoting
from dledger.net.quota import ConnectionQuota
from dledger.program.config import parse_config
from dledger.remoting.codec import encode_frame
from dledger.remoting.command import Command
from dledger.testing.certificates import client, contexts, files, pair, stranger
from dledger.testing.logs import capture_logs
from dledger.tls.clients import ClientContexts
from dledger.tls.options import ClientAuth, Mode
from mqclient.admin.access.encryption import TAKEN, TLS_ALONE, check_tls
from mqlocal import local_cluster
from mqnamesrv import app as namesrv
from mqnamesrv.config import NamesrvConfig

ANSWER_S = 5.0


class Echo(Handler):
    """Answers each request with its body."""

    def __call__(self, request: Command, connection: Connection) -> Command:
        return request.reply(0, body=request.body)


@dataclass
class Server:
    """A server in this loop, and how a good client reaches it."""

    port: int
    quota: ConnectionQuota
    tls: ClientContexts
    logs: list[dict[str, object]]

    async def served(self, body: bytes = b"hello", tls: ClientContexts | None = None) -> bytes:
        """The answer to a good client."""
        async with connect_peer("127.0.0.1", self.port, tls=tls or self.tls) as peer:
            return bytes((await peer.request(Command(1, body=body), ANSWER_S)).payload)

    @property
    def reasons(self) -> list[str]:
        """Reasons for which connections were closed."""
        return [str(line["reason"]) for line in self.logs if line["event"] == "connection closed"]


@asynccontextmanager
async def serving(
    folder: Path, mode: Mode = Mode.ENFORCING, client_auth: ClientAuth = ClientAuth.NONE
) -> AsyncIterator[Server]:
    """A server with TLS in this mode."""
    quota, taker = ConnectionQuota(), contexts(folder / "server", mode, client_auth).taker
    tls = ClientContexts.of(client(folder / "client"))
    assert tls is not None
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            serve = partial(serve_remoting, Echo(), "127.0.0.1", 0, quota=quota, tls=taker)
            yield Server(await nursery.start(serve), quota, tls, logs)
            nursery.cancel_scope.cancel()


def client_hello() -> bytes:
    """The first bytes of a handshake, as a real client sends them."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        stranger().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def until_closed(stream: trio.SocketStream) -> bytes:
    """Bytes that a server sends until it closes."""
    received = b""
    async with stream:
        with suppress(trio.BrokenResourceError):
            while piece := await stream.receive_some(65_536):
                received += piece
    return received


@pytest.mark.parametrize("mode", [Mode.PERMISSIVE, Mode.ENFORCING])
@pytest.mark.parametrize("size", [0, 100, 3_000_000])
async def test_requests_over_tls_are_answered(mode: Mode, size: int, tmp_path: Path) -> None:
    """Requests of any size are answered over TLS."""
    body = random.Random(size).randbytes(size)
    async with serving(tmp_path, mode) as server:
        assert await server.served(body) == body


async def test_a_check_shows_the_names_of_a_certificate_for_another_host(tmp_path: Path) -> None:
    """A check shows the names of a certificate for another host; of an untrusted one its end."""
    given, trusting = pair(hosts=("other.example",)), client(tmp_path / "client")
    serve = partial(serve_remoting, Echo(), "127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        taker = contexts(tmp_path / "server", given=given).taker
        port = await nursery.start(partial(serve, tls=taker))
        found = await check_tls("127.0.0.1", port, trusting, 5)
        assert "does not name the address that was dialled" in found.tls
        assert (found.refused_by, found.names) == ("this end", ("other.example",))
        found = await check_tls("127.0.0.1", port, client(tmp_path / "b", by="another"), 5)
        assert "does not trust" in found.tls
        assert (found.refused_by, found.names) == ("this end", ())
        assert found.valid_until
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("mode", "plain"), [(Mode.PERMISSIVE, TAKEN), (Mode.ENFORCING, TLS_ALONE)])
async def test_a_check_tells_how_a_port_takes_plain_text(
    mode: Mode, plain: str, tmp_path: Path
) -> None:
    """A port that takes TLS alone refuses it, and no advice for other clients is shown."""
    async with serving(tmp_path, mode) as server:
        found = await check_tls("127.0.0.1", server.port, client(tmp_path / "another"), 5)
    assert (found.plain, found.tls, found.refused_by) == (plain, TAKEN, "")


async def test_a_permissive_port_takes_both(tmp_path: Path) -> None:
    """The first byte tells which; a plain connection is the plain one it always was."""
    async with serving(tmp_path, Mode.PERMISSIVE) as server:
        assert await server.served() == b"hello"
        async with connect_peer("127.0.0.1", server.port) as peer:
            assert (
                bytes((await peer.request(Command(1, body=b"plain"), ANSWER_S)).payload) == b"plain"
            )


async def one_by_one(to: int, task_status: trio.TaskStatus[int]) -> None:
    """A relay before a port: a connection's first byte comes a second late, and alone; so does each
    byte behind it, half a millisecond apart."""

    async def relay(dialled: trio.SocketStream) -> None:
        async with (
            await trio.open_tcp_stream("127.0.0.1", to) as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(answers, server, dialled)
            await trio.sleep(1)
            async for piece in dialled:
                for byte in piece:
                    await server.send_all(bytes([byte]))
                    await trio.sleep(0.0005)
            nursery.cancel_scope.cancel()

    async def answers(server: trio.SocketStream, dialled: trio.SocketStream) -> None:
        async for piece in server:
            await dialled.send_all(piece)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(listener.socket.getsockname()[1])
    await trio.serve_listeners(relay, [listener])


async def test_a_permissive_port_tells_apart_what_comes_late_and_byte_by_byte(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A permissive port tells TLS from plain text by the first byte, however bytes are split."""
    async with serving(tmp_path, Mode.PERMISSIVE) as server, trio.open_nursery() as nursery:
        port: int = await nursery.start(one_by_one, server.port)
        assert await Server(port, server.quota, server.tls, []).served() == b"hello"
        async with connect_peer("127.0.0.1", port) as peer:
            answer = await peer.request(Command(1, body=b"plain"), 2 * ANSWER_S)
            assert bytes(answer.payload) == b"plain"
        nursery.cancel_scope.cancel()


async def test_plain_text_at_an_enforcing_port_is_closed_with_a_reason(tmp_path: Path) -> None:
    """Plain text is closed unanswered; the log and the client's error say what to do."""
    async with serving(tmp_path) as server:
        async with connect_peer("127.0.0.1", server.port) as peer:
            with pytest.raises(ConnectionLost, match="takes TLS alone does so: then give tls="):
                await peer.request(Command(1), ANSWER_S)
        assert any("takes TLS alone" in reason for reason in server.reasons)
        assert await server.served() == b"hello"


async def test_tls_at_a_plain_port_is_explained_to_the_client(tmp_path: Path) -> None:
    """A client's error says that a plain port speaks no TLS."""
    tls = ClientContexts.of(client(tmp_path))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve_remoting, Echo(), "127.0.0.1", 0))
        with pytest.raises(ConnectFailed, match="speaks no TLS at this port|not speak TLS|reset"):
            async with connect_peer("127.0.0.1", port, tls=tls):
                pass
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("shown", "words"),
    [(False, "demands|showed no certificate"), (True, None), ("other", "not trust|not accept")],
)
async def test_a_demanded_certificate_is_verified(
    shown: bool | str, words: str | None, tmp_path: Path
) -> None:
    """A client without a certificate, or with a foreign one, is told why and not served."""
    given = pair("another" if shown == "other" else "the authority") if shown else None
    tls = ClientContexts.of(client(tmp_path / "own", given))
    async with serving(tmp_path, Mode.ENFORCING, ClientAuth.REQUIRE) as server:
        if words is None:
            assert await server.served(tls=tls) == b"hello"
            return
        with pytest.raises(RemotingError, match=words):
            await server.served(tls=tls)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unknown", "an authority that this end does not trust"),
        ("expired", "has expired"),
        ("name", "does not name the address that was dialled"),
    ],
)
async def test_a_servers_certificate_is_verified(kind: str, words: str, tmp_path: Path) -> None:
    """A server's wrong certificate is refused by default, with the reason."""
    given = {
        "unknown": pair("another"),
        "expired": pair(days=-1),
        "name": pair(hosts=("broker.example",)),
    }[kind]
    taker = contexts(tmp_path / "server", given=given).taker
    tls = ClientContexts.of(client(tmp_path / "client"))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve_remoting, Echo(), "127.0.0.1", 0, tls=taker))
        with pytest.raises(ConnectFailed, match=words):
            async with connect_peer("127.0.0.1", port, tls=tls):
                pass
        nursery.cancel_scope.cancel()


async def test_half_handshakes_delay_nobody_and_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Two hundred half handshakes delay nobody, and are closed when their time is over."""
    hello = client_hello()
    async with serving(tmp_path) as server:
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(200)]
        for number, stream in enumerate(streams):
            await stream.send_all(hello[: 1 + number % len(hello)])
        assert await server.served() == b"hello"
        began = trio.current_time()
        for stream in streams:
            await until_closed(stream)
        assert trio.current_time() - began <= TLS_HANDSHAKE_S + 1
        assert server.quota.places_taken == 0
        assert all("no TLS handshake within" in reason for reason in server.reasons)


async def test_a_slow_handshake_is_as_bounded_as_a_silent_one(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A handshake of a byte each second is closed as a silent one is."""
    async with serving(tmp_path) as server:
        began, hello = trio.current_time(), client_hello()
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            with suppress(trio.BrokenResourceError):
                for byte in hello:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(1)
        assert trio.current_time() - began <= TLS_HANDSHAKE_S + 2


GARBAGE = {
    "after the hello": lambda chance: client_hello() + chance.randbytes(500),
    "the hello twice": lambda chance: client_hello() * 2,
    "a changed hello": lambda chance: bytes(
        byte ^ (chance.random() < 0.02) * 0xFF if at > 8 else byte
        for at, byte in enumerate(client_hello())
    ),
    "a huge record": lambda chance: b"\x16\x03\x01\xff\xff" + chance.randbytes(70_000),
    "an empty record": lambda chance: b"\x16\x03\x01\x00\x00" * 50,
    "an alert": lambda chance: b"\x15\x03\x01\x00\x02\x02\x28",
    "application data first": lambda chance: b"\x17\x03\x03\x00\x20" + bytes(32),
    "a frame": lambda chance: b"".join(map(bytes, encode_frame(Command(1, body=bytes(100))))),
    "http": lambda chance: b"GET / HTTP/1.1\r\n\r\n",
    "ssl 2": lambda chance: b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(40),
    "chance": lambda chance: b"\x16" + chance.randbytes(chance.randrange(2000)),
    "an endless handshake": lambda chance: (
        (
            b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"
            + bytes(0x3FFC)
            + b"\x16\x03\x01\x40\x00"
            + bytes(0x4000)
        )
        * (TLS_HANDSHAKE_BYTES_MAX // 0x4000)
    ),
}


@pytest.mark.parametrize("mode", [Mode.PERMISSIVE, Mode.ENFORCING])
@pytest.mark.parametrize("kind", GARBAGE)
async def test_what_is_no_handshake_ends_that_connection_alone(
    kind: str, mode: Mode, tmp_path: Path
) -> None:
    """Whatever comes, the server says why, answers nothing but TLS, and serves the others."""
    async with serving(tmp_path, mode) as server:
        for seed in range(5):
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            with suppress(trio.BrokenResourceError):
                await stream.send_all(GARBAGE[kind](random.Random(seed)))
                await stream.send_eof()
            with trio.fail_after(ANSWER_S):
                await until_closed(stream)
            assert await server.served() == b"hello"
        assert not [line for line in server.logs if line["event"] == "request handler failed"]


@pytest.mark.parametrize("seed", range(4))
async def test_bytes_that_are_changed_on_the_way_end_the_connection(
    seed: int, tmp_path: Path
) -> None:
    """A changed record ends its connection, and nothing behind it is served."""
    chance = random.Random(seed)
    async with serving(tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as raw:

            def spoil() -> bytes:
                frame = b"".join(map(bytes, encode_frame(Command(1, body=bytes(1000)))))
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                tls = stranger().wrap_bio(incoming, outgoing)
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        raw.sendall(outgoing.read())
                        incoming.write(raw.recv(65_536))
                raw.sendall(outgoing.read())
                tls.write(frame)
                record = bytearray(outgoing.read())
                record[chance.randrange(5, len(record))] ^= 1 << chance.randrange(8)
                raw.sendall(record)
                raw.settimeout(ANSWER_S)
                received = b""
                with suppress(ConnectionResetError):
                    while piece := raw.recv(65_536):
                        received += piece
                return received

            answered = await trio.to_thread.run_sync(spoil)
        assert len(answered) < 100  # an alert, and no answer
        assert any("changed on the way" in reason for reason in server.reasons)
        assert await server.served() == b"hello"


async def test_encrypted_connections_are_charged_for_their_memory(tmp_path: Path) -> None:
    """Encrypted connections are charged for their memory to the common quota."""
    async with serving(tmp_path) as server:
        async with connect_peer("127.0.0.1", server.port, tls=server.tls) as peer:
            await peer.request(Command(1), ANSWER_S)
            assert server.quota.charged_bytes >= CONNECTION_BYTES + TLS_CONNECTION_BYTES
        with trio.fail_after(ANSWER_S):
            while server.quota.places_taken:  # noqa: ASYNC110 - the server's
                await trio.sleep(0.01)
        assert server.quota.charged_bytes == 0


async def test_a_flood_of_handshakes_shares_the_loop(tmp_path: Path) -> None:
    """Three hundred handshakes at once delay a client's answer by 100 ms of the loop at most."""
    hello = client_hello()
    async with (
        serving(tmp_path) as server,
        connect_peer("127.0.0.1", server.port, tls=server.tls) as peer,
    ):
        for _ in range(20):
            await peer.request(Command(1), ANSWER_S)
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(300)]
        for stream in streams:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.send_all(hello)
        longest_s, cpu_s = 0.0, time.process_time()
        for _ in range(50):
            began_s = time.process_time()
            await peer.request(Command(1), ANSWER_S)
            longest_s = max(longest_s, time.process_time() - began_s)
        assert longest_s < LOOP_STALL_S, f"{longest_s:.3f} s of {time.process_time() - cpu_s:.3f}"
        for stream in streams:
            stream.socket.close()


async def test_a_disabled_port_takes_no_tls(tmp_path: Path) -> None:
    """A disabled port of a broker or a name server takes no TLS, though it has certificates."""
    own = files(tmp_path / "server")
    keys = {
        "tls.server.certPath": own.certificate,
        "tls.server.keyPath": own.key,
        "tls.server.trustCertPath": own.authorities,
    }
    tls = ClientContexts.of(client(tmp_path / "client"))
    config = parse_config(keys | {"listenPort": 0, "tls.enable": True}, NamesrvConfig, "test")
    async with trio.open_nursery() as nursery, local_cluster(settings=keys) as cluster:
        port = await nursery.start(partial(namesrv.serve, config))
        broker = cluster.address(await cluster.leader()).rpartition(":")[2]
        for each in (port, int(broker)):
            with pytest.raises(RemotingError):
                async with connect_peer("127.0.0.1", each, tls=tls):
                    pass
        nursery.cancel_scope.cancel()
