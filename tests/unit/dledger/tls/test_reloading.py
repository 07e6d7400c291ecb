"""Certificates are taken over without a restart, whole or not at all."""

from __future__ import annotations

import dataclasses
import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from dledger.files import replace
from dledger.testing.certificates import authority, ca_file, client, contexts, files, pair
from dledger.testing.logs import capture_logs
from dledger.tls.authority import Pair
from dledger.tls.clients import ClientContexts
from dledger.tls.handshake import dial
from dledger.tls.options import Mode, ServerOptions, TlsFailed
from dledger.tls.servers import ServerContexts

NEW = "a new authority"


async def can_connect(server: ServerContexts, folder: Path, trusting: str) -> bool:
    """Whether a client that trusts an authority can begin TLS."""
    dialling = ClientContexts.of(client(folder, by=trusting))
    assert dialling is not None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)

        async def accept() -> None:
            with suppress(TlsFailed):
                await server.begin(theirs)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            with suppress(TlsFailed):
                await dial(ours, dialling.context, "localhost")
                return True
    return False


async def test_a_new_pair_is_taken_over_once_both_files_are_there(tmp_path: Path) -> None:
    """The key comes first: until its certificate comes, the old pair stays, and the log "
    "says why."""
    server, new = contexts(tmp_path / "server"), pair(NEW)
    assert await can_connect(server, tmp_path / "c", "the authority")
    with capture_logs() as logs:
        replace(tmp_path / "server" / "key.pem", new.key)
        server._reloading.look()
        server._reloading.look()
        assert await can_connect(server, tmp_path / "c", "the authority")
        assert "does not belong" in server.problem
        replace(tmp_path / "server" / "cert.pem", new.certificate)
        server._reloading.look()
        assert await can_connect(server, tmp_path / "c", NEW)
        assert not await can_connect(server, tmp_path / "c", "the authority")

    assert server.problem == ""
    said = [line["event"] for line in logs]
    assert said == ["certificates not taken over", "certificates taken over"]


@pytest.mark.parametrize("kind", ["expired", "gone", "cut"])
async def test_what_can_not_be_used_changes_nothing(kind: str, tmp_path: Path) -> None:
    """An expired certificate, a missing file and half a file change nothing, with one alarm."""
    server, folder = contexts(tmp_path / "server"), tmp_path / "server"
    with capture_logs() as logs:
        if kind == "expired":
            pair(NEW, days=-1).write(folder / "cert.pem", folder / "key.pem")
        elif kind == "gone":
            (folder / "cert.pem").unlink()
        else:
            replace(folder / "cert.pem", pair(NEW).certificate[:100])
        for _ in range(3):
            server._reloading.look()
        assert await can_connect(server, tmp_path / "c", "the authority")
        pair(NEW).write(folder / "cert.pem", folder / "key.pem")
        server._reloading.look()
        assert await can_connect(server, tmp_path / "c", NEW)

    assert [line["event"] for line in logs] == [
        "certificates not taken over",
        "certificates taken over",
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pair(NEW), "ca.pem does not have the authority that signed it. Add it there first"),
        (pair(hosts=("other.example",)), "does not name localhost, where they dial this server"),
    ],
    ids=["authority", "name"],
)
async def test_what_other_members_would_refuse_is_not_taken_over(
    given: Pair, words: str, tmp_path: Path
) -> None:
    """A certificate that other members would refuse is not taken over; a start does not check."""
    folder = tmp_path / "server"

    def member(**options: str) -> ServerContexts:
        made = ServerOptions(found, Mode.ENFORCING, members=Mode.ENFORCING)
        return ServerContexts(dataclasses.replace(made, **options))

    found = files(folder)
    server, alone = member(host="localhost"), member()
    given.write(folder / "cert.pem", folder / "key.pem")
    for each in (server, alone):
        each._reloading.look()
    assert words in server.problem
    assert not alone.problem
    assert await can_connect(server, tmp_path / "c", "the authority")
    assert not member(host="localhost").problem

    ca_file(folder, "the authority", NEW)
    pair(NEW).write(folder / "cert.pem", folder / "key.pem")
    server._reloading.look()
    assert server.problem == ""
    assert await can_connect(server, tmp_path / "c", NEW)


async def test_authorities_overlap_while_they_roll(tmp_path: Path) -> None:
    """A client that trusts both reaches servers of either."""
    old = contexts(tmp_path / "old")
    new = contexts(tmp_path / "new", Mode.ENFORCING, given=pair(NEW))
    both = tmp_path / "both"
    both.mkdir()
    ca_file(both, "the authority", NEW)
    dialling = ClientContexts.of(both / "ca.pem")
    assert dialling is not None
    for server in (old, new):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.begin, theirs)
                await dial(ours, dialling.context, "localhost")


async def test_a_certificate_that_ends_soon_is_warned_of_once_a_day(tmp_path: Path) -> None:
    """A certificate that ends within days is warned of once a day."""
    soon, later = (
        contexts(tmp_path / "soon", given=pair(days=3)),
        contexts(tmp_path / "later", given=pair(days=30)),
    )
    with capture_logs() as logs:
        for server in (soon, later, soon):
            server._reloading.warn_of_end()

    (said,) = logs
    assert said["event"] == "certificate ends"
    assert said["days_left"] in (2, 1)


@pytest.mark.parametrize(("begins", "words"), [(-9, "has expired"), (2, "is not valid yet")])
async def test_a_server_that_starts_with_an_invalid_certificate_says_so(
    begins: int, words: str, tmp_path: Path
) -> None:
    """A server with an invalid certificate starts, as its group may need it, and says so."""
    moment = datetime.now(UTC) + timedelta(days=begins)
    given = authority().sign("s", ["localhost"], valid_from=moment, days=5)
    with capture_logs() as logs:
        contexts(tmp_path, given=given)._reloading.warn_of_end()

    (said,) = logs
    assert said["event"] == "certificate not valid"
    assert str(tmp_path) in said["reason"]
    assert words in said["reason"]
