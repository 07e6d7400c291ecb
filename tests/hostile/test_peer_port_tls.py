"""The port for members by TLS: who gets a link, which carries the same as a plain one."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from owners import Owner

from dledger.raft.membership.configuration import Configuration, initial
from dledger.raft.messages import Denied, encode_message
from dledger.raft.network.handshake import Handshaker
from dledger.raft.network.links import PeerNetwork, listen
from dledger.testing.certificates import files, pair
from dledger.testing.logs import capture_logs
from dledger.tls.authority import Pair
from dledger.tls.options import Mode, ServerOptions
from dledger.tls.servers import ServerContexts

WORD = b"a secret of sixteen"
PATIENCE_S = 5.0
APART_S = 1.5
"""Longer than two nodes need that may be linked."""


def encrypting(folder: Path, mode: Mode, given: Pair | None = None) -> ServerContexts:
    """TLS contexts of a member."""
    return ServerContexts(ServerOptions(files(folder, given), members=mode))


@asynccontextmanager
async def two(
    first: ServerContexts | None, second: ServerContexts | None
) -> AsyncIterator[tuple[Owner, Owner]]:
    """Two members; the second dials."""
    owners = Owner(), Owner()
    listeners: list[socket.socket] = [listen("127.0.0.1", 0), listen("127.0.0.1", 0)]
    ports = [int(each.getsockname()[1]) for each in listeners]
    addresses = {name: ("127.0.0.1", port) for name, port in zip("ab", ports, strict=True)}
    with capture_logs(), listeners[0], listeners[1]:
        async with trio.open_nursery() as nursery:
            for name, listener, owner, tls in zip(
                "ab", listeners, owners, (first, second), strict=True
            ):
                network = PeerNetwork(name, Handshaker("g", name, 1 << 20, WORD), owner, tls)
                nursery.start_soon(network.run, listener, Configuration(initial(addresses)))
            yield owners
            nursery.cancel_scope.cancel()


MODES = (None, Mode.PERMISSIVE, Mode.ENFORCING)


@pytest.mark.parametrize("dialler", MODES)
@pytest.mark.parametrize("acceptor", MODES)
async def test_members_are_linked_unless_one_wants_tls_and_the_other_has_none(
    acceptor: Mode | None, dialler: Mode | None, tmp_path: Path
) -> None:
    """A permissive member links with both kinds, so a group is turned over one by one."""
    one = None if acceptor is None else encrypting(tmp_path / "a", acceptor)
    other = None if dialler is None else encrypting(tmp_path / "b", dialler)
    apart = {acceptor, dialler} == {None, Mode.ENFORCING}
    async with two(one, other) as owners:
        with trio.move_on_after(APART_S if apart else PATIENCE_S):
            while not (owners[0].links and owners[1].links):  # noqa: ASYNC110 - polled
                await trio.sleep(0.01)
        assert bool(owners[0].links and owners[1].links) is not apart


async def test_an_encrypted_link_carries_every_message(tmp_path: Path) -> None:
    """A thousand messages arrive in each direction, whole and in order."""
    one, other = (encrypting(tmp_path / name, Mode.ENFORCING) for name in "ab")
    async with two(one, other) as owners:
        with trio.fail_after(PATIENCE_S):
            while not (owners[0].links and owners[1].links):  # noqa: ASYNC110 - polled
                await trio.sleep(0.01)
            for term in range(1000):
                owners[0].links["b"].send(encode_message(Denied(term)))
                owners[1].links["a"].send(encode_message(Denied(term)))
            while min(len(owner.terms) for owner in owners) < 1000:  # noqa: ASYNC110 - polled
                await trio.sleep(0.01)
        assert [owner.terms for owner in owners] == [[*range(1000)]] * 2


@pytest.mark.parametrize("kind", ["another authority", "expired", "another name"])
async def test_a_member_whose_certificate_is_refused_has_no_link(kind: str, tmp_path: Path) -> None:
    """A member needs the secret and a valid certificate: without the latter it gets no link."""
    given = {
        "another authority": pair("another"),
        "expired": pair(days=-1),
        "another name": pair(hosts=("elsewhere.example",)),
    }[kind]
    one = encrypting(tmp_path / "a", Mode.ENFORCING, given)
    async with two(one, encrypting(tmp_path / "b", Mode.ENFORCING)) as owners:
        await trio.sleep(APART_S)
        assert not owners[0].links
        assert not owners[1].links
