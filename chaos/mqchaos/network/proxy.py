"""The process that every link of a cluster goes through: `python -m mqchaos.network.proxy FOLDER`.

It listens once for each link, who dials whom, at an address that only this dialler was given, and
forwards to the real one. What a rule does to bytes is decided by `lane`; here are the sockets. With
no rule in force a chunk is read and written at once. A connection that is dialled over a cut link
is taken by the kernel, as no program can help, and then waits unanswered; it reaches the other side
only if whoever dialled still holds it when the cut is over.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
import trio

from dledger.observe import get_logger
from dledger.program.logs import configure_logging
from mqchaos.cluster.links import Link, read_links
from mqchaos.limits import LINK_CONNECTIONS_MAX, PROXY_CHUNK_BYTES
from mqchaos.network.control import Request, Status, read_line, short_path
from mqchaos.network.lane import Lane
from mqchaos.network.rules import PLAIN, Direction, Rule, combined

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_ESTABLISHED = 1

log = get_logger("mqchaos.network")


class Network:
    """The rules in force, and the connections that they are in force for."""

    def __init__(self) -> None:
        self._faults: dict[str, tuple[frozenset[Direction], Rule]] = {}
        self._touched: dict[str, int] = {}
        self._rules: dict[Direction, Rule] = {}
        self._whose: dict[Direction, list[str]] = {}
        self.connections: set[Connection] = set()

    def rule(self, direction: Direction) -> Rule:
        """The rule of a direction."""
        return self._rules.get(direction, PLAIN)

    def held_back(self, direction: Direction, count: int) -> None:
        """Bytes, or a connection, met a rule."""
        for name in self._whose.get(direction, ()):
            self._touched[name] += count

    def take(self, request: Request) -> Status:
        """Do what the harness wants, and say how things are."""
        directions = frozenset(request.directions)
        if request.rule is not None:
            self._faults[request.name] = (directions, request.rule)
            self._touched[request.name] = 0
        if request.healed:
            self._faults.pop(request.name, None)
            self._touched.pop(request.name, None)
        if request.reset:
            chosen = [each for each in self.connections if {*each.directions} & directions]
            for connection in chosen:
                connection.reset()
            self._touched[request.name] = len(chosen)
        self._renew()
        return Status(dict(self._touched), len(self.connections))

    def _renew(self) -> None:
        self._whose = {}
        for name, (directions, _) in self._faults.items():
            for direction in directions:
                self._whose.setdefault(direction, []).append(name)
        self._rules = {
            direction: combined(self._faults[name][1] for name in names)
            for direction, names in self._whose.items()
        }
        for connection in self.connections:
            connection.look_again()


class Connection:
    """Two sockets, and a lane each way between them."""

    def __init__(self, network: Network, link: Link, dialler: socket.socket) -> None:
        self.directions = ((link.source, link.target), (link.target, link.source))
        self._network = network
        self._link = link
        self._dialler = dialler
        self._waits: set[trio.CancelScope] = set()
        self._all = trio.CancelScope()

    def look_again(self) -> None:
        """End waits that the old rules have caused, as the rules have changed."""
        for scope in self._waits:
            scope.cancel()

    def reset(self) -> None:
        """End it for both sides, at once."""
        self._dialler.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self._all.cancel()

    async def run(self) -> None:
        """Forward until both sides have said all."""
        acceptor = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            with self._all:
                if not await self._reach(acceptor):
                    return
                forth, back = self.directions
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, self._dialler, acceptor, forth)
                    nursery.start_soon(self._pump, acceptor, self._dialler, back)
            if self._all.cancelled_caught:
                acceptor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        finally:
            self._dialler.close()
            acceptor.close()

    async def _reach(self, acceptor: socket.socket) -> bool:
        """Connect to the other side, once the link is whole; whether that was of use."""
        forth, back = self.directions
        while self._network.rule(forth).cut or self._network.rule(back).cut:
            self._network.held_back(forth, 1)
            await self._wait(trio.sleep_forever)
        info = self._dialler.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        if info[0] != _ESTABLISHED:
            return False
        acceptor.setblocking(False)
        acceptor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            acceptor.connect_ex(self._link.connect)
            await trio.lowlevel.wait_writable(acceptor)
            refused = acceptor.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError:
            refused = 1
        if refused:
            self._dialler.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        return not refused

    async def _pump(self, source: socket.socket, sink: socket.socket, way: Direction) -> None:
        lane = Lane(random.uniform)
        while not lane.over:
            rule, now = self._network.rule(way), trio.current_time()
            chunk = lane.due(now, rule)
            if chunk is not None:
                if not _write(sink, chunk, lane):
                    await self._wait(partial(trio.lowlevel.wait_writable, sink))
                continue
            read = _read(source, lane.room) if lane.room else None
            if read is not None:
                lane.take(now, rule, read)
                if rule is not PLAIN:
                    self._network.held_back(way, len(read))
                await trio.lowlevel.checkpoint()
            elif lane.room:
                readable = partial(trio.lowlevel.wait_readable, source)
                await self._wait(readable, lane.wake_at(rule))
            else:
                await self._wait(trio.sleep_forever, lane.wake_at(rule))

    async def _wait(self, what: Callable[[], Awaitable[None]], until: float = float("inf")) -> None:
        """Wait until `what` has happened, the moment has come, or the rules have changed."""
        with trio.CancelScope(deadline=until) as scope:
            self._waits.add(scope)
            try:
                await what()
            finally:
                self._waits.discard(scope)


def _read(source: socket.socket, room: int) -> bytes | None:
    """Received bytes; b"" at the end of the connection, however it ended; None if none have
    arrived."""
    try:
        return source.recv(min(room, PROXY_CHUNK_BYTES))
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _write(sink: socket.socket, chunk: memoryview, lane: Lane) -> bool:
    """Write what goes without waiting; False if nothing does."""
    try:
        if chunk:
            lane.wrote(sink.send(chunk))
        else:
            sink.shutdown(socket.SHUT_WR)
            lane.wrote(0)
    except BlockingIOError:
        return False
    except OSError:
        lane.drop()
    return True


async def _serve_link(network: Network, link: Link, nursery: trio.Nursery) -> None:
    """Take the connections of one link."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(link.listen)
        listener.listen(LINK_CONNECTIONS_MAX)
        listener.setblocking(False)
        room = trio.Semaphore(LINK_CONNECTIONS_MAX)
        while True:
            await room.acquire()
            await trio.lowlevel.wait_readable(listener)
            try:
                dialler, _ = listener.accept()
            except OSError as error:
                log.warning("a link can't accept", link=link.listen, reason=str(error))
                room.release()
                await trio.sleep(0.1)
                continue
            dialler.setblocking(False)
            dialler.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nursery.start_soon(_forward, network, Connection(network, link, dialler), room)


async def _forward(network: Network, connection: Connection, room: trio.Semaphore) -> None:
    network.connections.add(connection)
    try:
        await connection.run()
    finally:
        network.connections.discard(connection)
        room.release()


def _control_listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(folder) as path:
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
        Path(path).chmod(0o600)
    listener.listen(8)
    listener.setblocking(False)
    return listener


async def _serve_control(network: Network, folder: Path) -> None:
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(_control_listener(folder)))
    await trio.serve_listeners(partial(_answer, network), [listener])


async def _answer(network: Network, stream: trio.SocketStream) -> None:
    try:
        request = msgspec.json.decode(await read_line(stream), type=Request)
        await stream.send_all(msgspec.json.encode(network.take(request)) + b"\n")
        await stream.aclose()
    except (OSError, trio.BrokenResourceError, msgspec.DecodeError) as error:
        log.warning("a request was not understood", reason=str(error))


async def run_proxy(folder: Path, links: Iterable[Link]) -> None:
    """Forward all links until cancelled. OSError for an address that is taken."""
    network = Network()
    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(_serve_link, network, link, nursery)
        nursery.start_soon(_serve_control, network, folder)


def main() -> None:
    """Forward the links that the folder's file names."""
    configure_logging("json", "info")
    folder = Path(sys.argv[1])
    trio.run(run_proxy, folder, read_links(folder))


if __name__ == "__main__":
    main()
