"""Forks: a closed client may be opened in a child, an open one stays with its process."""

from __future__ import annotations

import copy
import fcntl
import gc
import inspect
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from dledger.errors import BadInput
from mqclient import (
    Admin,
    ClientClosed,
    Consumer,
    Message,
    PopConsumer,
    Producer,
    SendUnknown,
    blocking,
)
from mqclient.blocking.face import Face
from mqclient.connection.lifetime import Living
from mqclient.consuming.sharing.offsets import FileOffsets
from tests.unit.client.test_closed import NOBODY, OPEN_TO_ALL, ROUTE, calls

CHILD_S = 20


def in_a_child(body: Callable[[], None]) -> None:
    """Run `body` in a fork; the test fails with what it raises, or if it takes too long."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(CHILD_S)
        problem = "no end"
        try:
            body()
            gc.collect()
            problem = ""
        except BaseException:
            problem = traceback.format_exc()
        finally:
            os.write(writing, problem.encode()[:60_000])
            os._exit(bool(problem))
    os.close(writing)
    with os.fdopen(reading) as told:
        problem = told.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"status {status}\n{problem}"


def expect_forked(face: Any) -> None:
    """Each call raises at its first step: nothing is awaited."""
    served = []
    told = (f"process {os.getppid()}", f"fork {os.getpid()}", "after the fork")
    for name, call in calls(face, OPEN_TO_ALL):
        said = refusal(call)
        if not all(part in said for part in told):
            served.append((name, said))
    assert served == []


def refusal(call: Callable[[], Any]) -> str:
    """The words of the ClientClosed that the first step of a call raises, or none."""
    try:
        result = call()
        if inspect.isawaitable(result):
            result.__await__().send(None)
        elif isinstance(result, AbstractAsyncContextManager):
            result.__aenter__().__await__().send(None)  # type: ignore[attr-defined]
        elif isinstance(result, AbstractContextManager):
            result.__enter__()
    except ClientClosed as error:
        return str(error)
    return ""


async def commit(_: object) -> Any:
    """A checker that is never asked."""


MAKE: dict[str, Callable[[], Living]] = {
    "producer": lambda: Producer(NOBODY, "P", checker=commit),
    "named producer": lambda: Producer(NOBODY, name="n"),
    "consumer": lambda: Consumer(NOBODY, "C", subscriptions={"T": "*"}),
    "ordered consumer": lambda: Consumer(NOBODY, "C", subscriptions={"T": "*"}, ordered=True),
    "pop consumer": lambda: PopConsumer(NOBODY, "C", subscriptions={"T": "*"}),
    "admin": lambda: Admin(NOBODY),
}
MAKE_BLOCKING: dict[str, Callable[[], Face[Any]]] = {
    "producer": lambda: blocking.Producer(NOBODY, "P", checker=commit),  # type: ignore[arg-type]
    "named producer": lambda: blocking.Producer(NOBODY, name="n"),
    "consumer": lambda: blocking.Consumer(NOBODY, "C", subscriptions={"T": "*"}),
    "pop consumer": lambda: blocking.PopConsumer(NOBODY, "C", subscriptions={"T": "*"}),
    "admin": lambda: blocking.Admin(NOBODY),
}


@pytest.mark.parametrize("kind", MAKE)
async def test_each_call_of_what_is_open_in_the_parent_says_so_at_once(kind: str) -> None:
    """A child's call of an open client names both processes and the remedy; the parent goes on."""
    async with MAKE[kind]() as face:
        in_a_child(lambda: expect_forked(face))
        face.check_open()


@pytest.mark.parametrize("kind", MAKE_BLOCKING)
def test_each_blocking_call_of_what_is_open_in_the_parent_says_so_at_once(kind: str) -> None:
    """The child can leave the block, drop the object and end, without a thread to wait for."""

    def child() -> None:
        expect_forked(face)
        with pytest.raises(ClientClosed, match="after the fork"):
            face.__enter__()
        face.__exit__(None, None, None)

    with MAKE_BLOCKING[kind]() as face:
        in_a_child(child)
        _ = face.portal
    face = MAKE_BLOCKING[kind]()
    in_a_child(lambda: face.__enter__().__exit__(None, None, None))


def test_a_child_that_unwinds_its_parents_blocks_ends() -> None:
    """`sys.exit` in a fork leaves the blocks that the parent has entered, and the interpreter."""
    program = (
        "import os, sys\n"
        "from mqclient.blocking import Consumer, Producer\n"
        f"with Producer({NOBODY!r}), Consumer({NOBODY!r}, 'C', subscriptions={{'T': '*'}}):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        sys.exit(7)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONWARNINGS", "ignore")
        assert run_program(program) == "7\n"


def run_program(program: str) -> str:
    """Standard output of a program that ends with status 0 within its time."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=CHILD_S, check=True
    )
    return done.stdout


def identities(face: Living) -> Iterator[str]:
    """Names by which brokers tell a client and its messages apart."""
    if isinstance(face, Producer):
        yield face._outbox._encoder.encode(Message("T", b""), 0)[0]
        if face.named is not None:
            yield face.named.instance
    if not isinstance(face, Admin):
        yield face.client_id  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [kind for kind in MAKE if kind != "admin"])
def test_each_process_that_opens_a_copy_has_an_identity_of_its_own(kind: str) -> None:
    """A copy that is opened has its own client id, unique keys and instance."""
    face = MAKE[kind]()
    with pytest.raises(ClientClosed, match="no id yet"):
        _ = face.client_id  # type: ignore[attr-defined]
    found: list[list[str]] = []
    for _ in range(3):
        reading, writing = os.pipe()

        def child(writing: int = writing) -> None:
            async def tell() -> None:
                async with face:
                    os.write(writing, " ".join(identities(face)).encode())

            trio.run(tell)

        in_a_child(child)
        found.append(os.read(reading, 10_000).decode().split())
        os.close(reading)
        os.close(writing)
    told = [each for some in found for each in some]
    assert len(told) == len(set(told)) == 3 * len(found[0]) > 0


async def test_an_outcome_that_is_the_parents_is_no_childs() -> None:
    """`wait` in a child would wait for ever: it is told where the outcome is known."""
    async with Producer(NOBODY) as producer:
        producer._outbox._topics._publish_to("T", ROUTE)
        pending = producer.send_nowait(Message("T", b""), timeout_s=60)

        def child() -> None:
            with pytest.raises(SendUnknown, match=f"process {os.getppid()}"):
                pending.wait().__await__().send(None)

        in_a_child(child)
        assert not pending.settled
        producer._outbox.abandon()


def test_a_future_of_the_parents_is_done_in_a_child() -> None:
    """A parent's future raises SendUnknown in a child, as the parent's pending send does."""
    with blocking.Producer(NOBODY) as producer:
        producer.portal.call(producer.client._outbox._topics._publish_to, "T", ROUTE)
        future = producer.send_soon(Message("T", b""), timeout_s=60)

        def child() -> None:
            with pytest.raises(SendUnknown, match=f"process {os.getppid()}"):
                future.result(5)

        in_a_child(child)
        assert not future.done()
        producer.portal.call(producer.client._outbox.abandon)


def test_a_block_of_a_transaction_is_not_ended_in_a_child() -> None:
    """The child raises its own error, or hears that it has committed nothing."""
    with blocking.Producer(NOBODY, "P", checker=commit) as producer:  # type: ignore[arg-type]

        class Block:
            async def __aenter__(self) -> str:
                return "entered"

            async def __aexit__(self, *_: object) -> None:
                assert os.getpid() == parent

        parent = os.getpid()

        def child() -> None:
            with pytest.raises(ClientClosed, match="after the fork"):
                block.__exit__(None, None, None)

        block = producer.within(Block)
        assert block.__enter__() == "entered"
        in_a_child(child)
        block.__exit__(None, None, None)


async def test_a_connection_ends_with_its_process_though_a_child_lives() -> None:
    """A connection ends with its process, so that brokers see a killed member as gone."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(5)
    host, port = listener.getsockname()
    async with Admin(f"{host}:{port}") as admin, trio.open_nursery() as nursery:
        nursery.start_soon(admin._requests._pool.connect, f"{host}:{port}")
        accepted, _ = await trio.to_thread.run_sync(listener.accept)
        accepted.settimeout(5)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        nursery.cancel_scope.cancel()
    try:
        assert await trio.to_thread.run_sync(accepted.recv, 1) == b""
    except ConnectionResetError:
        pass
    finally:
        os.close(writing)
        os.close(reading)
        await trio.to_thread.run_sync(os.waitpid, child, 0)
        accepted.close()
        listener.close()


def test_a_file_of_offsets_is_free_when_its_consumer_is_closed_though_a_child_lives(
    tmp_path: Path,
) -> None:
    """A file of offsets is locked while its consumer is open, whatever children do."""
    path = tmp_path / "offsets"
    kept = FileOffsets(path)
    kept.open()
    in_a_child(kept.stay_behind)
    with pytest.raises(BadInput, match="another consumer"):
        FileOffsets(path).open()
    copied = os.dup(kept._lock)  # as in a child that was forked by other means
    kept.close()
    again = FileOffsets(path)
    again.open()
    again.close()
    fcntl.flock(copied, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(copied)


@pytest.mark.parametrize("make", [*MAKE.values(), *MAKE_BLOCKING.values()])
def test_a_client_is_not_pickled_or_copied(make: Callable[[], object]) -> None:
    """Pickling or copying a client is refused with the remedy, as `multiprocessing` would do it."""
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="Make one where it is used"):
            call(make())
