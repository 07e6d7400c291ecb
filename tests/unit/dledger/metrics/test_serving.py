"""The port for figures: its answers, who gets them, and what a stranger may cost."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from dledger.errors import BadInput, ConfigError
from dledger.metrics import limits
from dledger.metrics.admission import Admission
from dledger.metrics.cached import CachedPage
from dledger.metrics.config import port_of
from dledger.metrics.pages import Details, Pages
from dledger.metrics.requests import Asked, NoSuchName
from dledger.metrics.serving import serve_figures
from dledger.net import Faults
from dledger.trust.guard import Guard, Mode
from dledger.trust.policies import Entry
from dledger.trust.users import User, Users
from dledger.trust.wrapping import Wrapping
from mqbroker.config import BrokerConfig

SECRET = b"the cluster's own secret"
TOKEN = " ".join(["a token that is long enough"])


class Health:
    """A server that is alive, and not ready."""

    def alive(self) -> str | None:
        return None

    def ready(self) -> str | None:
        return "it has no leader"

    def safe_to_stop(self) -> str | None:
        return None


def user(name: str, password: str, *, is_super: bool = False) -> User:
    return User(name, Wrapping(SECRET).wrap(name, password), is_super)


def guard(*users: User, mode: Mode = Mode.OFF) -> Guard:
    table = Users()
    for each in users:
        table.put(each)
    judge = Guard(SECRET, lambda: (table,), None, lambda: 0, bytes(32))  # type: ignore[arg-type]
    judge.mode = mode
    return judge


def figures() -> Iterator[str]:
    yield "figure 1\n"


def details(wanted: Details) -> Iterator[str]:
    if wanted.topics == ("many",):
        raise BadInput("too many queues")
    if wanted.topics == ("typo",):
        raise NoSuchName("there is no topic 'typo'")
    yield f"of {' '.join(wanted.topics)} and {' '.join(wanted.groups)}\n"


@asynccontextmanager
async def served(judge: Guard | None = None, token: str = "") -> AsyncIterator[tuple[int, Faults]]:
    """The port on loopback, with its count of faults."""
    admission = Admission("127.0.0.1", token, judge or guard(), lambda: "C")
    faults = Faults()
    async with trio.open_nursery() as nursery:
        pages = Pages(admission, figures, details, Health())
        port: int = await nursery.start(serve_figures, pages, "127.0.0.1", 0, faults)
        yield port, faults
        nursery.cancel_scope.cancel()


async def exchange(port: int, data: bytes) -> bytes:
    """All bytes that the port answers to some bytes, until it ends the connection."""
    with trio.fail_after(30):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            received = b""
            try:
                await stream.send_all(data)
                await stream.send_eof()
                async for part in stream:
                    received += part
            except trio.BrokenResourceError:
                pass
            return received


async def get(
    port: int, path: str, authorization: str = "", method: str = "GET"
) -> tuple[int, str]:
    """A status and a body."""
    told = f"Authorization: {authorization}\r\n" if authorization else ""
    request = f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{told}\r\n"
    head, _, body = (await exchange(port, request.encode())).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def test_each_path_is_answered() -> None:
    """Figures, details, three judgements and the index each have their path."""
    async with served() as (port, faults):
        assert await get(port, "/metrics") == (200, "figure 1\n")
        assert await get(port, "/metrics/detailed?topic=T&topic=U&group=G") == (
            200,
            "of T U and G\n",
        )
        assert await get(port, "/healthz") == (200, "ok\n")
        assert await get(port, "/readyz") == (503, "it has no leader\n")
        assert await get(port, "/safe-to-stop") == (200, "ok\n")
        assert (await get(port, "/"))[0] == 404
        assert (await get(port, "/metrics/detailed"))[0] == 400
        assert (await get(port, "/metrics/detailed?topics=T"))[0] == 400
        assert await get(port, "/metrics/detailed?topic=many") == (400, "too many queues\n")
        unknown = await get(port, "/metrics/detailed?topic=typo")
        assert unknown == (404, "there is no topic 'typo'\n")
        assert (await get(port, "/metrics", method="POST"))[0] == 405
        assert await get(port, "/metrics", method="HEAD") == (200, "")
        assert faults.count == 0


async def test_a_connection_is_kept_for_the_next_scrape() -> None:
    """Two requests use one connection, one after the other."""
    request = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
    last = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    async with served() as (port, _):
        assert (await exchange(port, request + last)).count(b"figure 1\n") == 2


async def test_a_token_is_needed_where_there_is_one() -> None:
    """A request without the token is refused, on loopback, too; a probe gets the status alone."""
    async with served(token=TOKEN) as (port, _):
        assert (await get(port, "/metrics"))[0] == 401
        assert (await get(port, "/metrics", "Bearer another token, as long"))[0] == 401
        assert (await get(port, "/metrics", f"Bearer {TOKEN}"))[0] == 200
        assert await get(port, "/readyz") == (503, "no\n")
        assert await get(port, "/readyz", f"Bearer {TOKEN}") == (503, "it has no leader\n")


async def test_users_are_needed_while_rights_are_enforced() -> None:
    """Figures need a super user, or one who may Get the cluster, while rights are enforced."""
    may = user("may", "secret of may")._replace(
        entries=(Entry("Custom", "Cluster:C", ("Get",), (), "Allow"),)
    )
    judge = guard(user("root", "root's own", is_super=True), may, user("none", "nothing"))
    judge.mode = Mode.ENFORCE
    async with served(judge) as (port, faults):
        assert (await get(port, "/metrics"))[0] == 401
        assert (await get(port, "/metrics", basic("root", "root's own")))[0] == 200
        assert (await get(port, "/metrics", basic("may", "secret of may")))[0] == 200
        assert (await get(port, "/metrics", basic("may", "wrong")))[0] == 401
        assert (await get(port, "/metrics", basic("nobody", "wrong")))[0] == 401
        status, told = await get(port, "/metrics", basic("none", "nothing"))
        assert status == 401
        assert "no permission to access Cluster:C" in told
        for odd in ("Basic", "Basic !!", "Basic " + base64.b64encode(b"\xff").decode(), "Digest x"):
            assert (await get(port, "/metrics", odd))[0] == 401
        assert faults.count == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100,
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET http://[x/metrics HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /metrics/detailed?" + b"topic=T&" * 1000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"x" * 2 * limits.REQUEST_BYTES_MAX,
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: \xff\xfe\r\n\r\nGARBAGE\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_request_end_their_connection(data: bytes) -> None:
    """Bytes that are not HTTP end their own connection alone, and are no fault of the server."""
    async with served() as (port, faults):
        await exchange(port, data)
        assert await get(port, "/metrics") == (200, "figure 1\n")
        assert faults.count == 0


async def test_a_request_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that comes byte by byte, and a silent connection, are cut off after a time."""
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)

    async def drip(slow: trio.SocketStream) -> None:
        while True:
            await slow.send_all(b"G")
            await trio.sleep(0.02)

    async with served() as (port, _):
        with trio.fail_after(30):
            async with await trio.open_tcp_stream("127.0.0.1", port) as slow:
                with pytest.raises(trio.BrokenResourceError):
                    await drip(slow)
        assert await exchange(port, b"") == b""


async def test_strangers_that_hold_connections_keep_no_scrape_away() -> None:
    """The oldest connection without figures is closed when all places are taken."""
    async with served() as (port, _):
        held = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(40)]
        assert await get(port, "/metrics") == (200, "figure 1\n")
        for each in held:
            await each.aclose()


async def test_a_page_is_made_once_for_all_who_ask(autojump_clock: trio.abc.Clock) -> None:
    """A page is made once for all requests of a second."""
    page = CachedPage(figures)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(page.page)
    assert page.made == 1
    await trio.sleep(limits.PAGE_S + 0.1)
    await page.page()
    assert page.made == 2


async def test_a_page_that_could_not_be_made_is_tried_again() -> None:
    """A page that failed is an error for its caller, and the next call makes another."""
    tries = 0

    def made() -> Iterator[str]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("once")
        yield "x"

    page = CachedPage(made)
    with pytest.raises(ValueError, match="once"):
        await page.page()
    assert await page.page() == b"x"


def test_nothing_is_open_beyond_loopback_without_a_proof(tmp_path: object) -> None:
    """A port beyond loopback needs a token, or users, for which the cluster has a secret."""
    config = BrokerConfig(metrics_exporter_type="PROM", metrics_prom_exporter_host="0.0.0.0")
    with pytest.raises(ConfigError, match="metricsTokenFile"):
        port_of(config, has_users=False)
    assert port_of(config, has_users=True) is not None
    assert port_of(BrokerConfig(), has_users=False) is None


def test_a_port_beyond_loopback_always_asks_for_a_proof() -> None:
    """A port beyond loopback asks for a proof, also while no rights are enforced."""
    asked = Asked("/metrics", "10.0.0.1")
    assert Admission("0.0.0.0", "", guard(), lambda: "C").refusal(asked) is not None
    assert Admission("127.0.0.1", "", guard(), lambda: "C").refusal(asked) is None
