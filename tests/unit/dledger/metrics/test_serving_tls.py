"""The port for figures by TLS: each mode, client certificates, and new files."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from dledger.files import replace
from dledger.metrics import limits
from dledger.metrics.admission import Admission
from dledger.metrics.pages import Details, Pages
from dledger.metrics.serving import serve_figures
from dledger.net import Faults
from dledger.testing.certificates import authority, contexts, pair, stranger
from dledger.tls.clients import ClientContexts
from dledger.tls.options import ClientAuth, Mode, Tls
from dledger.tls.servers import ServerContexts
from dledger.trust.guard import Guard
from dledger.trust.users import Users

TOKEN = " ".join(["a token that is long enough"])
LONG = "x" * 100 + "\n"
PIECES = 20_000
REQUEST = "GET {} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{}\r\n"


class Health:
    """A server that is well, and not safe to stop."""

    def alive(self) -> str | None:
        return None

    def ready(self) -> str | None:
        return None

    def safe_to_stop(self) -> str | None:
        return "it leads"


def figures() -> Iterator[str]:
    """Two megabytes: more than a socket takes at once."""
    yield from (LONG for _ in range(PIECES))


def no_details(_: Details) -> Iterator[str]:
    return iter(())


@asynccontextmanager
async def served(tls: ServerContexts, token: str = "") -> AsyncIterator[tuple[int, Faults]]:
    """The port on loopback by TLS, with its count of faults."""
    taker = tls.taker
    guard = Guard(None, lambda: (Users(),), None, lambda: 0, bytes(32))  # type: ignore[arg-type]
    admission = Admission("127.0.0.1", token, guard, lambda: "C", taker and taker.options)
    pages, faults = Pages(admission, figures, no_details, Health()), Faults()
    async with trio.open_nursery() as nursery:
        serve = partial(serve_figures, pages, "127.0.0.1", 0, faults, tls=taker)
        yield await nursery.start(serve), faults
        nursery.cancel_scope.cancel()


def trusting(folder: Path, *, certified: bool = False, by: str = "the authority") -> ssl.SSLContext:
    """Prometheus's context: it trusts an authority, and may show a certificate of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.pem").write_bytes(authority(by).pair.certificate)
    if not certified:
        return _context(Tls(ca=folder / "ca.pem"))
    pair().write(folder / "own.pem", folder / "own.key")
    return _context(Tls(ca=folder / "ca.pem", cert=folder / "own.pem", key=folder / "own.key"))


def _context(tls: Tls) -> ssl.SSLContext:
    made = ClientContexts.of(tls)
    assert made is not None
    return made.context


async def get(
    port: int, path: str, context: ssl.SSLContext | None = None, token: str = ""
) -> tuple[int, str]:
    """A status and a body, by https if a context is given. Raises what a refusal raises."""
    told = f"Authorization: Bearer {token}\r\n" if token else ""
    with trio.fail_after(30):
        plain = await trio.open_tcp_stream("127.0.0.1", port)
        stream: trio.abc.Stream = plain
        if context is not None:
            stream = trio.SSLStream(
                plain, context, server_hostname="localhost", https_compatible=True
            )
        received = b""
        try:
            await stream.send_all(REQUEST.format(path, told).encode())
            while part := await stream.receive_some(65_536):
                received += part
        finally:
            await trio.aclose_forcefully(stream)
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("mode", [Mode.PERMISSIVE, Mode.ENFORCING])
async def test_figures_are_told_by_tls(mode: Mode, tmp_path: Path) -> None:
    """Figures and health are served by TLS, a long page as a whole, with the token."""
    context = trusting(tmp_path / "c")
    async with served(contexts(tmp_path / "s", mode), TOKEN) as (port, faults):
        assert await get(port, "/metrics", context, TOKEN) == (200, LONG * PIECES)
        assert (await get(port, "/metrics", context))[0] == 401
        assert await get(port, "/healthz", context) == (200, "ok\n")
        assert await get(port, "/safe-to-stop", context) == (503, "no\n")
        assert await get(port, "/safe-to-stop", context, TOKEN) == (503, "it leads\n")
        assert faults.count == 0


async def test_plain_text_is_taken_as_the_mode_says(tmp_path: Path) -> None:
    """A permissive port takes plain text; an enforcing one answers it with how to ask."""
    async with served(contexts(tmp_path / "p", Mode.PERMISSIVE)) as (port, _):
        assert await get(port, "/metrics") == (200, LONG * PIECES)
        assert await get(port, "/healthz") == (200, "ok\n")
    async with served(contexts(tmp_path / "e", Mode.ENFORCING), TOKEN) as (port, _):
        for path in ("/metrics", "/metrics/detailed?topic=T", "/healthz", "/readyz", "/x"):
            status, told = await get(port, path, token=TOKEN)
            assert (status, "https" in told) == (400, True)


async def test_a_disabled_port_takes_no_tls(tmp_path: Path) -> None:
    """Though the server has certificates, for its members: plain text alone is answered."""
    async with served(contexts(tmp_path / "s", Mode.DISABLED)) as (port, _):
        assert (await get(port, "/metrics"))[0] == 200
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await get(port, "/metrics", trusting(tmp_path / "c"))


async def test_figures_need_a_certificate_where_clients_do(tmp_path: Path) -> None:
    """Figures need a certificate of the authority; a probe without one gets the status alone."""
    tls = contexts(tmp_path / "s", Mode.ENFORCING, ClientAuth.REQUIRE)
    own, probe = trusting(tmp_path / "own", certified=True), stranger()
    async with served(tls) as (port, faults):
        assert (await get(port, "/metrics", own))[0] == 200
        assert await get(port, "/safe-to-stop", own) == (503, "it leads\n")
        status, told = await get(port, "/metrics", probe)
        assert (status, "certificate" in told) == (401, True)
        assert await get(port, "/healthz", probe) == (200, "ok\n")
        assert await get(port, "/safe-to-stop", probe) == (503, "no\n")
        foreign = trusting(tmp_path / "foreign")
        pair("another").write(tmp_path / "foreign" / "x.pem", tmp_path / "foreign" / "x.key")
        foreign.load_cert_chain(tmp_path / "foreign" / "x.pem", tmp_path / "foreign" / "x.key")
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await get(port, "/healthz", foreign)
        assert faults.count == 0


async def test_new_certificates_are_taken_over(tmp_path: Path) -> None:
    """New certificates are used from the next connection on, without a restart."""
    tls, new = contexts(tmp_path / "s"), pair("a new authority")
    old = trusting(tmp_path / "old")
    async with served(tls) as (port, _):
        assert (await get(port, "/healthz", old))[0] == 200
        replace(tmp_path / "s" / "key.pem", new.key)
        replace(tmp_path / "s" / "cert.pem", new.certificate)
        tls._reloading.look()
        context = trusting(tmp_path / "new", by="a new authority")
        assert (await get(port, "/healthz", context))[0] == 200
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await get(port, "/healthz", old)


@pytest.mark.parametrize(
    "sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16" + b"\xff" * 99]
)
async def test_a_handshake_has_a_time_and_a_form(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a handshake, and garbage, end their own connection and are no fault of the server."""
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    async with served(contexts(tmp_path / "s")) as (port, faults):
        with trio.fail_after(30):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(sent)
                    while await stream.receive_some(1000):
                        pass
        monkeypatch.setattr(limits, "REQUEST_S", 30)
        assert (await get(port, "/healthz", stranger()))[0] == 200
        assert faults.count == 0


async def test_silent_connections_keep_no_tls_scrape_away(tmp_path: Path) -> None:
    """A connection without figures is closed when all places are taken."""
    async with served(contexts(tmp_path / "s")) as (port, _):
        held = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(40)]
        assert (await get(port, "/metrics", trusting(tmp_path / "c")))[0] == 200
        for each in held:
            await each.aclose()
