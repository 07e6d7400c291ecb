"""Memory that strangers occupy: half frames, waiting requests, groups, places, descriptors."""

from __future__ import annotations

import gc
import resource
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from dledger.addresses import origin_of
from dledger.errors import ConfigError
from dledger.limits import CONNECTION_BYTES, FRAME_BYTES_MAX, KIB, MIB
from dledger.net import Connection, Handler, connect_peer, machine, serve_remoting, server
from dledger.net.link import Link
from dledger.net.quota import ConnectionQuota, Place, memory_for_connections, places_for
from dledger.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import FLAG_ONEWAY, Command
from dledger.testing.logs import capture_logs
from mqbroker.refusal import Refused
from mqbroker.requests.groups.membership import Client, Membership
from mqchaos.cluster.processes import free_ports

ECHO, NEVER, LATER = 1, 2, 3


class Answering(Handler):
    """Answers at once, never, or in a task that waits for ever."""

    def __call__(
        self, request: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        if request.code == LATER:
            return self.for_ever()
        return request.reply(0) if request.code == ECHO else None

    async def for_ever(self) -> None:
        await trio.sleep_forever()


@asynccontextmanager
async def serving(quota: ConnectionQuota) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve_remoting, Answering(), "127.0.0.1", 0, quota=quota))
        nursery.cancel_scope.cancel()


async def until_closed(stream: trio.SocketStream) -> None:
    with trio.fail_after(30):
        try:
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass


async def asked(port: int) -> int:
    """A bystander's request is answered."""
    async with connect_peer("127.0.0.1", port) as peer:
        return (await peer.request(Command(ECHO), 30)).code


# -- the quota, as values --------------------------------------------------------------------


def test_whoever_keeps_most_is_closed_when_all_keep_too_much() -> None:
    """The connection with most bytes is closed, with a reason that names the sums."""
    quota, closed = ConnectionQuota(bytes_max=MIB), dict[str, str]()
    places = {}
    for name in ("small", "large", "middle"):
        places[name] = quota.enter("127.0.0.1", partial(closed.__setitem__, name))
    for name, kept in (("small", 100 * KIB), ("large", 500 * KIB), ("middle", 400 * KIB)):
        place = places[name]
        assert place is not None
        quota.charge(place, kept)
    assert list(closed) == ["large"]
    assert "the most of all" in closed["large"]
    assert str(MIB) in closed["large"]
    assert quota.charged_bytes <= MIB
    assert (quota.offenders, quota.places_taken) == (1, 2)


actions = st.lists(
    st.tuples(
        st.sampled_from(["enter", "leave", "speak", "charge"]),
        st.integers(0, 20),
        st.integers(0, 2 * MIB),
    ),
    max_size=200,
)


@given(actions)
def test_the_bounds_hold_together_whatever_clients_do(steps: list[tuple[str, int, int]]) -> None:
    """Places, bytes and origins stay within bounds after each step, and are given back."""
    quota = ConnectionQuota(places_max=8, bytes_max=MIB, per_address_max=3)
    inside: list[Place] = []
    for action, number, kept in steps:
        if action == "enter":
            place = quota.enter(f"10.0.0.{number % 4}", lambda _: None)
            inside += [place] if place is not None else []
        elif inside:
            place = inside[number % len(inside)]
            if action == "leave":
                quota.leave(place)
            elif action == "speak":
                quota.spoke(place)
            else:
                quota.charge(place, kept)
        inside = [place for place in inside if place.taken]
        assert quota.places_taken == len(inside) <= 8
        assert quota.charged_bytes == sum(place.charged_bytes for place in inside) <= MIB
        origins = [place.origin for place in inside]
        assert all(origins.count(origin) <= 3 for origin in origins)
    for place in inside:
        quota.leave(place)
    assert quota.charged_bytes == quota.places_taken == 0


def test_a_silent_connection_makes_room_and_one_that_spoke_does_not() -> None:
    """The connection that has been silent longest makes room, and never one that spoke."""
    quota, closed = ConnectionQuota(places_max=3), list[int]()

    def enter(number: int) -> Place | None:
        return quota.enter("127.0.0.1", lambda _: closed.append(number))

    places = [enter(number) for number in range(3)]
    assert places[0] is not None
    quota.spoke(places[0])
    places.append(enter(3))
    assert closed == [1]
    for place in places:
        assert place is not None
        quota.spoke(place)
    assert enter(4) is None
    assert "3 are open" in quota.refusal


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("127.0.0.1", None),
        ("127.8.9.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not an address", "not an address"),
    ],
)
def test_what_counts_as_one_origin(address: str, origin: str | None) -> None:
    """An origin is an IPv4 address or an IPv6 network of 64 bits; loopback is none."""
    assert origin_of(address) == origin


def test_the_default_bounds_follow_the_machine() -> None:
    """A server may use a quarter of the memory, and the descriptors that its log leaves."""
    assert memory_for_connections(64 * 1024 * MIB) == 512 * MIB
    assert memory_for_connections(1024 * MIB) == 256 * MIB
    assert (places_for(1024, 704), places_for(1 << 20, 704)) == (320, 4096)


def test_a_limit_of_descriptors_that_leaves_no_room_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A low limit of descriptors is an error with the remedy, before anything starts."""
    monkeypatch.setattr(machine, "raise_descriptor_limit", lambda: 256)
    with pytest.raises(ConfigError, match="raise the hard limit to 764"):
        machine.quota_on_machine(0, 0, 700)


# -- connections -------------------------------------------------------------------------------


async def test_half_sent_frames_are_paid_for_by_whoever_sent_most() -> None:
    """The sender of the largest half frames is closed, and others are served on."""
    quota = ConnectionQuota(bytes_max=4 * MIB)
    async with serving(quota) as port:
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(8)]
        with capture_logs() as logs:
            for number, stream in enumerate(streams, 1):
                frame = struct.pack(">I", FRAME_BYTES_MAX) + bytes(number * 200 * KIB)
                try:
                    await stream.send_all(frame)
                except trio.BrokenResourceError:
                    continue
            await until_closed(streams[-1])
            assert await asked(port) == 0
        assert quota.charged_bytes <= 4 * MIB
        assert any("the bound is 4194304" in log.get("reason", "") for log in logs)
        for stream in streams:
            await stream.aclose()


async def send_for_ever(stream: trio.SocketStream, request: Command) -> None:
    for request.opaque in range(10_000):
        await stream.send_all(b"".join(encode_frame(request)))


@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY])
@pytest.mark.parametrize("size", [10, 20 * KIB])
@pytest.mark.parametrize("code", [NEVER, LATER])
async def test_requests_that_wait_for_their_answer_count(code: int, size: int, flag: int) -> None:
    """A waiting request is charged with its size and a closure's, one-way or not."""
    quota = ConnectionQuota(bytes_max=MIB if code == NEVER else 200 * KIB)
    async with serving(quota) as port:
        request = Command(code, body=bytes(size), flag=flag)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            with pytest.raises(trio.BrokenResourceError):
                await send_for_ever(stream, request)
        assert quota.offenders == 1
        assert await asked(port) == 0


async def test_what_was_kept_is_given_back() -> None:
    """A connection is charged for itself alone, once its requests are answered."""
    quota = ConnectionQuota()
    async with serving(quota) as port, connect_peer("127.0.0.1", port) as peer:
        for size in (0, 10, 5 * KIB, MIB, 0):
            peer.send_oneway(Command(ECHO, body=bytes(size)))
            await peer.request(Command(ECHO, body=bytes(size)), 30)
        assert quota.charged_bytes <= CONNECTION_BYTES + 20 * KIB
    assert quota.places_taken == 0


async def test_the_memory_of_a_closed_connection_is_free_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A closed connection's memory is free without the garbage collector, in any state."""
    links: list[weakref.ref[Link]] = []

    def made(*arguments: object) -> Link:
        link = Link(*arguments)  # type: ignore[arg-type]
        links.append(weakref.ref(link))
        return link

    monkeypatch.setattr(server, "Link", made)
    gc.collect()
    gc.disable()
    try:
        async with serving(ConnectionQuota(bytes_max=MIB)) as port:
            for size in (100 * KIB, 2 * MIB):
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    with suppress(trio.BrokenResourceError):
                        await stream.send_all(struct.pack(">I", FRAME_BYTES_MAX) + bytes(size))
                assert await asked(port) == 0
            with trio.fail_after(10):
                while any(link() is not None for link in links):  # noqa: ASYNC110 -- nobody tells
                    await trio.sleep(0.01)
        assert len(links) == 4
    finally:
        gc.enable()


async def test_an_opaque_used_twice_can_not_hide_a_large_request() -> None:
    """Answers are matched by it: the second one would pay for the first."""
    async with (
        serving(ConnectionQuota()) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        with capture_logs() as logs:
            for code, size in ((NEVER, 20 * KIB), (ECHO, 0)):
                request = Command(code, body=bytes(size), opaque=7)
                await stream.send_all(b"".join(encode_frame(request)))
            await until_closed(stream)
        assert any("opaque 7" in log.get("reason", "") for log in logs)


async def test_newcomers_are_served_though_all_places_are_taken_by_silent_ones() -> None:
    """Newcomers are served, one after the other, though silent connections take all places."""
    async with serving(ConnectionQuota(places_max=4)) as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(20)]
        for _ in range(6):
            assert await asked(port) == 0
        for stream in silent:
            await stream.aclose()


# -- what heartbeats make a broker keep --------------------------------------------------------


def beat(
    membership: Membership, connection_id: int, *groups: str, topics: int = 1, tag: str = ""
) -> set[str]:
    client = Client(f"c{connection_id}", "10.0.0.1:1", "JAVA", 1)
    subscriptions = [SubscriptionData(f"T{n}", tags_set=(tag,)) for n in range(topics)]
    data = [ConsumerData(group, subscription_data_set=subscriptions) for group in groups]
    return membership.heartbeat(
        connection_id, client, HeartbeatData(client.client_id, [], data), 0.0
    )


def test_groups_add_up_over_heartbeats_and_are_bounded() -> None:
    """New names with each heartbeat once filled the memory, for as long as the connection stood."""
    membership = Membership()
    for number in range(1024):
        beat(membership, 1, f"G{number}")
    with pytest.raises(Refused, match="over one connection"):
        beat(membership, 1, "one more")
    assert len(list(membership.consumer_groups())) == 1024


def test_what_a_heartbeat_says_is_counted() -> None:
    """A heartbeat's texts are counted within a factor, until the connection is gone."""
    membership = Membership()
    beat(membership, 1, "G", topics=100, tag="x" * 10_000)
    assert 1_000_000 < membership.kept_bytes(1) < 1_200_000
    membership.disconnected(1)
    assert membership.kept_bytes(1) == 0


def test_subscriptions_are_counted_for_whoever_keeps_their_group() -> None:
    """A group's subscriptions are counted for the client that still has the group."""
    membership = Membership()
    beat(membership, 2, "G")
    beat(membership, 1, "G", topics=100, tag="x" * 10_000)
    small = membership.kept_bytes(2)
    membership.disconnected(1)
    assert small < 2000
    assert membership.kept_bytes(2) > 1_000_000


def test_one_connection_is_one_client() -> None:
    """A heartbeat with another client id replaces the one before of its connection."""
    membership = Membership()
    for number in range(10):
        client = Client(f"c{number}", "10.0.0.1:1", "JAVA", 1)
        membership.heartbeat(1, client, HeartbeatData(client.client_id), 0.0)
    assert membership.connection_of("c8") is None
    assert membership.connection_of("c9") == 1


# -- descriptors -------------------------------------------------------------------------------

PATIENCE_S = 120.0
"""Seconds that mean "for ever": a busy machine needs half a minute to start a broker."""


@contextmanager
def broker_process(folder: Path, descriptors: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A broker process that may have this many descriptors."""
    port, peer_port = free_ports(2)
    config = folder / "broker.toml"
    config.write_text(
        f'listenPort = {port}\nstorePathRootDir = "{folder / "store"}"\n'
        f'dLegerPeers = "n0-127.0.0.1:{peer_port}"\ngroupClientAddrs = "n0-127.0.0.1:{port}"\n'
    )
    command = f"ulimit -n {descriptors}; exec {sys.executable} -m mqbroker -c {config}"
    process = subprocess.Popen(["sh", "-c", command], stderr=subprocess.DEVNULL)
    with process:
        try:
            yield process, port
        finally:
            process.kill()


def serves(port: int) -> bool:
    """Whether a newcomer is answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
            stranger.sendall(b"".join(encode_frame(Command(RequestCode.GROUP_INFO))))
            return bool(stranger.recv(1))
    except OSError:
        return False


@pytest.mark.slow
def test_idle_connections_leave_a_broker_its_descriptors(tmp_path: Path) -> None:
    """A broker that may have 1,024 descriptors keeps its log under 1,200 idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with broker_process(tmp_path, 1024) as (process, port), ExitStack() as held:
            deadline = time.monotonic() + PATIENCE_S
            while not serves(port):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for _ in range(1200):
                held.enter_context(
                    socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
                )
            assert serves(port)
            assert process.poll() is None
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 1024 - 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
