"""The floor: the way of one message through three replicas, with nothing done on it.

A client sends 1 KiB and waits. The leader appends it to a file and sends it to two followers, which
append it and answer; at the first answer it answers the client. With fsync each of the three syncs
its file before its answer counts. There is no election, no checksum, no header, no index: what is
left are the system calls that any such program makes, and the language. Once on the kernel's epoll
(`epoll`), and once as tasks of trio (`trio`), which the brokers and our client run on.

Usage: bare.py LOOP follower fsync|no-fsync LISTEN_PORT FILE
       bare.py LOOP leader fsync|no-fsync LISTEN_PORT FILE FOLLOWER_PORT...
       bare.py LOOP ADDRESS TOPIC single SIZE_BYTES SECONDS COUNT     prints one line of JSON
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from pathlib import Path

import trio
from timing import one_outstanding

MESSAGE_BYTES = 1024
ANSWER_BYTES = 64
ANSWER = bytes(ANSWER_BYTES)


def now(sock: socket.socket) -> socket.socket:
    """What is sent goes at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def dial(port: int) -> socket.socket:
    """A connection to a port of loopback."""
    return now(socket.create_connection(("127.0.0.1", port)))


def take(sock: socket.socket, size: int) -> bytes:
    """One whole message; ends the process when the other side is gone."""
    data = sock.recv(size)
    while 0 < len(data) < size:
        data += sock.recv(size - len(data))
    if not data:
        sys.exit()
    return data


class File:
    """What a replica keeps."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._file, 0, 64 << 20)
        self._end = 0
        self.fsync = fsync

    def write(self, data: bytes) -> None:
        """Append."""
        os.pwrite(self._file, data, self._end)
        self._end = (self._end + len(data)) % (64 << 20)

    def sync(self) -> None:
        """Make it durable, if this run wants that."""
        if self.fsync:
            os.fdatasync(self._file)


# -- epoll -------------------------------------------------------------------------------------


def wait(polled: select.epoll) -> int:
    """The next socket that has something."""
    return polled.poll()[0][0]


def follow_by_epoll(listener: socket.socket, file: File) -> None:
    """Append and answer."""
    leader = now(listener.accept()[0])
    polled = select.epoll()
    polled.register(leader, select.EPOLLIN)
    while True:
        wait(polled)
        file.write(take(leader, MESSAGE_BYTES))
        file.sync()
        leader.sendall(ANSWER)


def lead_by_epoll(listener: socket.socket, file: File, followers: list[socket.socket]) -> None:
    """Append, send on, and answer the client at the first answer."""
    polled = select.epoll()
    polled.register(listener, select.EPOLLIN)
    behind = {follower.fileno(): 0 for follower in followers}
    by_number = {follower.fileno(): follower for follower in followers}
    for follower in followers:
        polled.register(follower, select.EPOLLIN)
    client, written, answered = listener, 0, 0
    while True:
        number = wait(polled)
        if number == listener.fileno():
            client = now(listener.accept()[0])
            polled.register(client, select.EPOLLIN)
        elif number in by_number:
            take(by_number[number], ANSWER_BYTES)
            behind[number] += 1
            if behind[number] == written and answered < written:
                answered = written
                client.sendall(ANSWER)
        else:
            data = take(client, MESSAGE_BYTES)
            file.write(data)
            for follower in followers:
                follower.sendall(data)
            file.sync()
            written += 1


def ask_by_epoll(port: int, seconds: float) -> dict[str, float]:
    """The client: no task ever waits but in the kernel, so nothing needs to run it."""
    sock, polled, body = dial(port), select.epoll(), bytes(MESSAGE_BYTES)
    polled.register(sock, select.EPOLLIN)

    async def send() -> None:
        sock.sendall(body)
        wait(polled)
        take(sock, ANSWER_BYTES)

    try:
        one_outstanding(send, seconds).send(None)
    except StopIteration as done:
        return dict(done.value)
    raise AssertionError("it waited for a loop")


# -- trio --------------------------------------------------------------------------------------


async def take_soon(sock: trio.socket.SocketType, size: int) -> bytes:
    """One whole message; ends the process when the other side is gone."""
    data = await sock.recv(size)
    while 0 < len(data) < size:
        data += await sock.recv(size - len(data))
    if not data:
        sys.exit()
    return data


async def sync_in_thread(file: File) -> None:
    """A disk may take long, and the loop must not wait for it."""
    if file.fsync:
        await trio.to_thread.run_sync(file.sync)


async def follow_by_trio(listener: socket.socket, file: File) -> None:
    """Append and answer."""
    leader = trio.socket.from_stdlib_socket(now(listener.accept()[0]))
    while True:
        file.write(await take_soon(leader, MESSAGE_BYTES))
        await sync_in_thread(file)
        await leader.send(ANSWER)


async def lead_by_trio(listener: socket.socket, file: File, dialled: list[socket.socket]) -> None:
    """Append, send on, and answer the client at the first answer; a task for each connection."""
    followers = [trio.socket.from_stdlib_socket(sock) for sock in dialled]
    answers = [0 for _ in followers]
    first = trio.Event()

    async def hear(number: int) -> None:
        nonlocal first
        while True:
            await take_soon(followers[number], ANSWER_BYTES)
            answers[number] += 1
            if answers[number] == max(answers) > answers[1 - number]:
                first.set()

    async def serve(client: trio.socket.SocketType) -> None:
        nonlocal first
        while True:
            data = await take_soon(client, MESSAGE_BYTES)
            first = trio.Event()
            file.write(data)
            for follower in followers:
                await follower.send(data)
            await sync_in_thread(file)
            await first.wait()
            await client.send(ANSWER)

    listening = trio.socket.from_stdlib_socket(listener)
    async with trio.open_nursery() as nursery:
        for number in range(len(followers)):
            nursery.start_soon(hear, number)
        while True:
            client, _ = await listening.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nursery.start_soon(serve, client)


async def ask_by_trio(port: int, seconds: float) -> dict[str, float]:
    """The client."""
    sock, body = trio.socket.from_stdlib_socket(dial(port)), bytes(MESSAGE_BYTES)

    async def send() -> None:
        await sock.send(body)
        await take_soon(sock, ANSWER_BYTES)

    return await one_outstanding(send, seconds)


def replicate(
    by_trio: bool, role: str, fsync: bool, port: int, path: Path, peers: list[int]
) -> None:
    """A leader or a follower, until it is ended."""
    file, followers = File(path, fsync=fsync), [dial(peer) for peer in peers]
    with socket.create_server(("127.0.0.1", port)) as listener:
        match by_trio, role:
            case True, "leader":
                trio.run(lead_by_trio, listener, file, followers)
            case True, _:
                trio.run(follow_by_trio, listener, file)
            case False, "leader":
                lead_by_epoll(listener, file, followers)
            case _:
                follow_by_epoll(listener, file)


def main() -> None:
    """One of the processes."""
    loop, *words = sys.argv[1:]
    if words[0] in ("leader", "follower"):
        role, fsync, port, path, *peers = words
        numbers = [int(peer) for peer in peers]
        replicate(loop == "trio", role, fsync == "fsync", int(port), Path(path), numbers)
        return
    port, seconds = int(words[0].rpartition(":")[2]), float(words[4])
    said = trio.run(ask_by_trio, port, seconds) if loop == "trio" else ask_by_epoll(port, seconds)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
