"""World: the seam between a program and its machine, and its virtual form in tests."""

from __future__ import annotations

import errno
import socket
import threading
import time

import pytest
import trio
from trio.testing import MockClock

from dledger.testing.virtual import SELDOM, VirtualWorld, virtual_world
from dledger.world import World, in_world, listen, steady_s, unix_ms, world


@pytest.fixture
def virtual(autojump_clock: MockClock) -> VirtualWorld:
    """A world on the test's clock."""
    return VirtualWorld(autojump_clock)


async def test_time_is_the_event_loops(virtual: VirtualWorld, autojump_clock: MockClock) -> None:
    """Both virtual clocks pass with the event loop's; the wall clock began with the machine's."""
    with in_world(virtual):
        assert abs(unix_ms() - time.time() * 1000) < 60_000
        steady, unix = steady_s(), unix_ms()
        await trio.sleep(86_400)

        assert steady_s() - steady == 86_400
        assert unix_ms() - unix == pytest.approx(86_400_000, abs=1)
    assert abs(unix_ms() - time.time() * 1000) < 60_000


async def test_a_task_has_the_world_of_who_started_it(virtual: VirtualWorld) -> None:
    """A task has the world of the task that started it, and no other has it."""
    found: list[World] = []

    async def look() -> None:
        found.append(world())

    real = world()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        with in_world(virtual):
            nursery.start_soon(look)
        nursery.start_soon(look)

    assert sorted(found, key=id) == sorted([real, virtual, real], key=id)


async def test_there_is_one_virtual_world_in_a_run(autojump_clock: MockClock) -> None:
    """Clusters side by side have the same wall clock."""
    assert virtual_world() is virtual_world()


async def test_a_real_clock_has_none() -> None:
    """Clocks are the machine's, unless a test wants virtual ones."""
    assert virtual_world() is None


async def test_no_thread_is_needed(virtual: VirtualWorld, autojump_clock: MockClock) -> None:
    """The clock would not wait for one; in the machine's world there is one."""
    assert await virtual.in_thread(threading.get_ident) == threading.get_ident()
    assert await World().in_thread(threading.get_ident) != threading.get_ident()


async def test_signs_of_life_are_rare(virtual: VirtualWorld) -> None:
    """Heartbeats are rarer in a virtual world, and as usual in the machine's."""
    assert virtual.seldom_s(1.5) == 1.5 * SELDOM
    assert World().seldom_s(1.5) == 1.5


async def test_a_memory_socket_has_a_host_and_a_port(virtual: VirtualWorld) -> None:
    """Bytes are there when the send has returned; an address is taken by who listens at it."""
    with in_world(virtual), listen("127.0.0.1", 0, 8) as listener:
        host, port = listener.getsockname()
        with pytest.raises(OSError, match="in use") as taken:
            listen(host, port, 8)
        assert taken.value.errno == errno.EADDRINUSE
        with virtual.socket(socket.AF_INET) as ours:
            ours.setblocking(False)
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert ours.connect_ex((host, port)) == 0
            theirs, (peer, _) = listener.accept()
            with theirs:
                ours.send(b"here")
                assert theirs.recv(4, socket.MSG_DONTWAIT) == b"here"
                assert peer == "127.0.0.1"
    with virtual.socket(socket.AF_INET) as late:
        assert late.connect_ex((host, port)) == errno.ECONNREFUSED


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_taken_port_is_named(host: str) -> None:
    """A taken port is an error with its address, on the machine's network, too."""
    with listen(host, 0, 8) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"in use .{host}:{port}."):
            listen(host, port, 8)
