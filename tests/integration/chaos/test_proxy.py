"""The proxy on real sockets: bytes pass or wait, and its memory does not grow."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from mqchaos.cluster.links import Link
from mqchaos.cluster.processes import ClusterError, free_ports
from mqchaos.limits import LANE_BYTES_MAX
from mqchaos.network.control import Request, Status, tell
from mqchaos.network.proxy import run_proxy
from mqchaos.network.rules import CUT, Rule

FORTH, BACK = ("a", "b"), ("b", "a")
SILENCE_S = 0.15
"""Long enough for what is not cut to have come through."""


class Scene:
    """A dialler, a server that answers in capitals, and the proxy between them."""

    def __init__(self, folder: Path, link: Link) -> None:
        self.folder = folder
        self.link = link
        self.streams: list[trio.SocketStream] = []

    async def dial(self) -> trio.SocketStream:
        self.streams.append(await trio.open_tcp_stream(*self.link.listen))
        return self.streams[-1]

    async def tell(
        self, *directions: tuple[str, str], rule: Rule | None = None, **more: bool
    ) -> Status:
        return await tell(self.folder, Request("it", list(directions), rule, **more))


async def shout(stream: trio.SocketStream) -> None:
    async with stream:
        try:
            async for chunk in stream:
                await stream.send_all(chunk.upper())
        except trio.BrokenResourceError:
            pass


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Scene]:
    port = free_ports(1)[0]
    link = Link("a", "b", ("127.77.1.2", port), ("127.0.0.1", port))
    async with trio.open_nursery() as nursery:
        (server,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, shout, [server])
        nursery.start_soon(run_proxy, tmp_path, [link])
        with trio.fail_after(10):
            while True:
                try:
                    await (await trio.open_tcp_stream(*link.listen)).aclose()
                    await tell(tmp_path, Request())
                    break
                except (OSError, ClusterError):
                    await trio.sleep(0.01)
            it = Scene(tmp_path, link)
            yield it
        for stream in it.streams:
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def silent(stream: trio.SocketStream) -> bool:
    """Whether nothing comes for a while."""
    with trio.move_on_after(SILENCE_S) as scope:
        await stream.receive_some(100)
    return scope.cancelled_caught


async def test_bytes_and_ends_go_through(it: Scene) -> None:
    """Bytes and ends pass both ways, and an end of one way leaves the other open."""
    stream = await it.dial()
    await stream.send_all(b"hello")
    assert await stream.receive_some(100) == b"HELLO"
    await stream.send_eof()
    assert await stream.receive_some(100) == b""


@pytest.mark.parametrize("way", [FORTH, BACK], ids=["forth", "back"])
async def test_a_cut_direction_holds_bytes_until_it_is_mended(
    it: Scene, way: tuple[str, str]
) -> None:
    """A cut of one direction stops answers, and the proxy says how many bytes it holds."""
    stream = await it.dial()
    await stream.send_all(b"x")
    await stream.receive_some(1)
    assert (await it.tell(way, rule=CUT)).touched == {"it": 0}
    await stream.send_all(b"hello")
    assert await silent(stream)
    assert (await tell(it.folder, Request())).touched == {"it": 5}
    assert (await it.tell(healed=True)).touched == {}
    assert await stream.receive_some(100) == b"HELLO"


async def test_a_death_behind_a_cut_is_not_noticed_before_its_end(it: Scene) -> None:
    """A server's death behind a cut is noticed after it, as the end waits like the bytes."""
    stream = await it.dial()
    await stream.send_all(b"x")
    await stream.receive_some(1)
    await it.tell(BACK, rule=CUT)
    await stream.send_eof()  # the server closes, too
    assert await silent(stream)
    await it.tell(healed=True)
    assert await stream.receive_some(1) == b""


async def test_who_dials_over_a_cut_and_gives_up_never_arrives(it: Scene) -> None:
    """A dialler that gives up during a cut never arrives, and one that waits does."""
    await it.tell(FORTH, BACK, rule=CUT)
    early, patient = await it.dial(), await it.dial()
    await early.aclose()
    await patient.send_all(b"x")
    assert await silent(patient)
    await it.tell(healed=True)
    assert await patient.receive_some(1) == b"X"
    await trio.sleep(SILENCE_S)
    assert (await tell(it.folder, Request())).connections == 1


async def test_a_reset_is_felt_at_once(it: Scene) -> None:
    """A reset ends existing connections at once, and no later one."""
    stream = await it.dial()
    await stream.send_all(b"x")
    await stream.receive_some(1)
    assert (await it.tell(FORTH, reset=True)).touched == {"it": 1}
    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some(1)
    again = await it.dial()
    await again.send_all(b"x")
    assert await again.receive_some(1) == b"X"


async def test_a_slow_link_is_slow(it: Scene) -> None:
    """A delay in both directions takes twice its time."""
    stream = await it.dial()
    await it.tell(FORTH, BACK, rule=Rule(delay_s=0.05))
    before = trio.current_time()
    await stream.send_all(b"x")
    await stream.receive_some(1)
    assert 0.1 <= trio.current_time() - before < 1.0


async def test_a_cut_link_takes_only_so_much(it: Scene) -> None:
    """A cut link fills the dialler's buffers, and all of it arrives afterwards."""
    total = 32 << 20
    stream = await it.dial()
    await stream.send_all(b"x")
    await stream.receive_some(1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    await it.tell(FORTH, rule=CUT)

    async def send() -> None:
        for _ in range(total >> 20):
            await stream.send_all(b"x" * (1 << 20))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.sleep(SILENCE_S)
        held = (await tell(it.folder, Request())).touched["it"]
        assert held <= LANE_BYTES_MAX
        await it.tell(healed=True)
        came = 0
        while came < total:
            came += len(await stream.receive_some(1 << 20))
    assert came == total
