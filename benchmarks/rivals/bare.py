"""The floor: the way of messages through three replicas, with nothing done on them.

A client sends a frame. The leader appends it to a file and sends it to two followers, which append
it and answer; at the first answer it answers the client. With fsync each of the three syncs its
file before its answer counts, once for all frames that have come. There is no election, no
checksum, no header, no index: what is left are the system calls that any such program makes, and
the language. `single` has one frame of 1 KiB outstanding, once on the kernel's epoll (`epoll`), and
once as tasks of trio (`trio`), which the brokers and our client run on. `many` has frames of 512
KiB, which is how our client sends what is pipelined, and as much of them outstanding.

Usage: bare.py LOOP follower fsync|no-fsync LISTEN_PORT FILE
       bare.py LOOP leader fsync|no-fsync LISTEN_PORT FILE FOLLOWER_PORT...
       bare.py LOOP ADDRESS TOPIC single|many SIZE_BYTES SECONDS COUNT     prints one line of JSON
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

import trio
from timing import one_outstanding

from dledger.buffers import Buffer

MESSAGE_BYTES = 1024
ANSWER_BYTES = 64
ANSWER = bytes(ANSWER_BYTES)
LENGTH = struct.Struct(">I")
"""How a frame begins: its length, these bytes included."""
MANY_BYTES = 512 << 10
OUTSTANDING_MAX = 12
BUFFER_BYTES = 4 << 20
FILE_BYTES = 1 << 30
"""Bytes beyond a run's writes, so that each write takes a new page, as in a log."""


def now(sock: socket.socket) -> socket.socket:
    """Switch the delay of small packets off."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def dial(port: int) -> socket.socket:
    """A connection to a port of loopback."""
    return now(socket.create_connection(("127.0.0.1", port)))


def take(sock: socket.socket, size: int) -> bytes:
    """Read one whole message; end the process when the other side is gone."""
    data = sock.recv(size)
    while 0 < len(data) < size:
        data += sock.recv(size - len(data))
    if not data:
        sys.exit()
    return data


class File:
    """The file of a replica: reserved once, and written from the start again when it is full."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._file, 0, FILE_BYTES)
        self._end = 0
        self.fsync = fsync

    def write(self, data: Buffer) -> None:
        """Append bytes, without a sync."""
        if self._end + len(data) > FILE_BYTES:
            self._end = 0
        os.pwrite(self._file, data, self._end)
        self._end += len(data)

    def sync(self) -> None:
        """Make all that was written durable, if this run wants that."""
        if self.fsync:
            os.fdatasync(self._file)


# -- epoll -------------------------------------------------------------------------------------


def wait(polled: select.epoll) -> list[int]:
    """The sockets that have something."""
    return [number for number, _ in polled.poll()]


class Inlet:
    """Frames that come in on a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._end = 0

    def take(self) -> list[memoryview]:
        """Read the whole frames that are there after one more `recv`; valid until the next.

        EOFError when the other side is gone.
        """
        count = self._sock.recv_into(self._buffer[self._end :])
        if not count:
            raise EOFError
        start, self._end, frames = 0, self._end + count, []
        while self._end - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, start)
            if self._end - start < length:
                break
            frames.append(self._buffer[start : start + length])
            start += length
        # Only half a frame is moved: the whole ones before it stay where they are.
        if start and start == self._end:
            self._end = 0
        elif start:
            rest = bytes(self._buffer[start : self._end])
            frames = [memoryview(bytes(frame)) for frame in frames]
            self._buffer[: len(rest)] = rest
            self._end = len(rest)
        return frames


def follow_by_epoll(listener: socket.socket, file: File) -> None:
    """Be a follower: write each message and answer, until the leader is gone."""
    leader = now(listener.accept()[0])
    polled, inlet = select.epoll(), Inlet(leader)
    polled.register(leader, select.EPOLLIN)
    while True:
        wait(polled)
        frames = inlet.take()
        for frame in frames:
            file.write(frame)
        if frames:
            file.sync()
            leader.sendall(ANSWER * len(frames))


def lead_by_epoll(listener: socket.socket, file: File, followers: list[socket.socket]) -> None:
    """Append, send on, and answer the client at the first answer."""
    polled = select.epoll()
    polled.register(listener, select.EPOLLIN)
    answers = {follower.fileno(): 0 for follower in followers}
    by_number = {follower.fileno(): follower for follower in followers}
    for follower in followers:
        polled.register(follower, select.EPOLLIN)
    client, inlet, written, answered = listener, Inlet(listener), 0, 0
    while True:
        before = written
        for number in wait(polled):
            if number == listener.fileno():
                client = now(listener.accept()[0])
                inlet = Inlet(client)
                polled.register(client, select.EPOLLIN)
            elif number in by_number:
                answers[number] += len(by_number[number].recv(BUFFER_BYTES))
            else:
                try:
                    frames = inlet.take()
                except EOFError:  # the next client comes soon
                    polled.unregister(client)
                    client.close()
                    continue
                for frame in frames:
                    file.write(frame)
                    for follower in followers:
                        follower.sendall(frame)
                written += len(frames)
        if written > before:
            file.sync()
        counted = min(written, max(answers.values()) // ANSWER_BYTES)
        if counted > answered:
            client.sendall(ANSWER * (counted - answered))
            answered = counted


def frame_of(size: int) -> bytes:
    """A frame of this many bytes."""
    return LENGTH.pack(size) + bytes(size - LENGTH.size)


def ask_by_epoll(port: int, seconds: float) -> dict[str, float]:
    """The client: no task ever waits but in the kernel, so nothing needs to run it."""
    sock, polled, body = dial(port), select.epoll(), frame_of(MESSAGE_BYTES)
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


def ask_for_many(port: int, size: int, seconds: float) -> dict[str, float]:
    """Send messages in large frames, as many as fit, some of them outstanding."""
    sock, frame = dial(port), frame_of(MANY_BYTES)
    sent, answered = 0, 0
    began, cpu = time.monotonic(), time.process_time()
    while answered < sent or time.monotonic() < began + seconds:
        if sent - answered < OUTSTANDING_MAX and time.monotonic() < began + seconds:
            sock.sendall(frame)
            sent += 1
        else:
            take(sock, ANSWER_BYTES)
            answered += 1
    messages = sent * (MANY_BYTES // size)
    took, spent = time.monotonic() - began, time.process_time() - cpu
    return {"count": messages, "seconds": took, "cpu_s": spent, "sent": messages}


# -- trio --------------------------------------------------------------------------------------


async def take_soon(sock: trio.socket.SocketType, size: int) -> bytes:
    """Read one whole message; end the process when the other side is gone."""
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
    """Be a follower: write each message and answer, until the leader is gone."""
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
    """Be the client: send messages one by one for `seconds`; returns the figures."""
    sock, body = trio.socket.from_stdlib_socket(dial(port)), frame_of(MESSAGE_BYTES)

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
                with suppress(EOFError):
                    follow_by_epoll(listener, file)


def main() -> None:
    """Run one of the processes, or the client, by the words of the command line."""
    loop, *words = sys.argv[1:]
    if words[0] in ("leader", "follower"):
        role, fsync, port, path, *peers = words
        numbers = [int(peer) for peer in peers]
        replicate(loop == "trio", role, fsync == "fsync", int(port), Path(path), numbers)
        return
    port, work, size = int(words[0].rpartition(":")[2]), words[2], int(words[3])
    seconds = float(words[4])
    if work == "many":
        said = ask_for_many(port, size, seconds)
    elif loop == "trio":
        said = trio.run(ask_by_trio, port, seconds)
    else:
        said = ask_by_epoll(port, seconds)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
