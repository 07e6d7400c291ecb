"""Python of the pages does as the page says, word by word, against a cluster.

A test gives a block what the page's reader has: an address, a handler, an import. Programs that the
reader saves as files are run by test_pages.py, and tests by test_testing_page.py.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from blocks import program as block_of

import mqclient
from mqclient import Message, Producer
from mqlocal import LocalCluster, ThreadedCluster, VirtualLoop, local_cluster_in_thread

pytestmark = pytest.mark.mq_cluster(replicas=1)

OF_THE_PAGES = "127.0.0.1:9876"
"""A test's cluster has another address."""
PATIENCE_S = 60.0
SENT = 5


def compiled(page: str, has: str, namesrv: str) -> Callable[[dict[str, Any]], Awaitable[object]]:
    """The block as a function of its names."""
    text = block_of(page, has).text.replace(OF_THE_PAGES, namesrv)
    code = compile(text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run(names: dict[str, Any]) -> None:
        result = eval(code, names)  # noqa: S307 - the page's own text
        if inspect.isawaitable(result):
            await result

    return run


async def follow(
    page: str,
    has: str,
    cluster: LocalCluster,
    *,
    until: Callable[[dict[str, Any]], object] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Run a block to its end, or until it has done its work. Returns its names."""
    namesrv = cluster.namesrv_addr
    names = {name: getattr(mqclient, name) for name in mqclient.__all__}
    names |= {"namesrv": namesrv, "NAMESRV": namesrv, **given}
    run = compiled(page, has, namesrv)
    with trio.fail_after(PATIENCE_S):
        if until is None:
            await run(names)
            return names
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, names)
            while not until(names):  # noqa: ASYNC110 - the page's code sets no event
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    return names


async def send(cluster: LocalCluster, topic: str) -> None:
    async with cluster.producer("P") as producer:
        for number in range(SENT):
            await producer.send(Message(topic, b"%d" % number, keys=f"k{number}"))


async def stored(cluster: LocalCluster, *topics: str, count: int) -> list[Any]:
    """Messages of the topics, `count` of them."""
    got: list[Any] = []
    async with cluster.consumer("looks", dict.fromkeys(topics, "*")) as consumer:
        while len(got) < count:
            messages = await consumer.poll(timeout_s=PATIENCE_S)
            assert messages, got
            got += messages
    return got


class Handler:
    """A handler that keeps the bodies, and ends its process in order by the last of them."""

    def __init__(self, *, signals: bool = False) -> None:
        self.bodies: list[bytes] = []
        self._signals = signals

    async def __call__(self, message: Any) -> None:
        self.bodies.append(message.body)
        if self._signals and len(self.bodies) == SENT:
            signal.raise_signal(signal.SIGTERM)

    def is_done(self, _: object) -> bool:
        return len(self.bodies) == SENT


@pytest.mark.parametrize(("page", "topic"), [("guarantees.md", "Hello"), ("web.md", "Orders")])
async def test_a_worker_stops_in_order_at_a_signal(
    page: str, topic: str, mq_cluster: LocalCluster
) -> None:
    """The block ends by itself, with all messages handled."""
    await send(mq_cluster, topic)
    handle = Handler(signals=True)
    await follow(page, "run_until_signal", mq_cluster, handle=handle)

    assert len(handle.bodies) == SENT


async def test_a_service_has_its_producer_while_it_lives(mq_cluster: LocalCluster) -> None:
    """`lifespan` of docs/how-to/web.md opens the producer."""
    names = await follow(
        "web.md", "def lifespan", mq_cluster, asynccontextmanager=asynccontextmanager
    )
    app = SimpleNamespace(state=SimpleNamespace())

    async with names["lifespan"](app):
        assert (await app.state.producer.send(Message("Orders", b"1"))).queue_offset == 0


async def test_many_are_polled_as_columns(mq_cluster: LocalCluster) -> None:
    """The block of docs/how-to/consuming.md polls many messages as columns."""
    await send(mq_cluster, "Clicks")
    printed: list[Any] = []
    await follow(
        "consuming.md",
        "poll_many",
        mq_cluster,
        until=lambda _: len(printed) == SENT,
        msgspec=msgspec,
        np=np,
        time=SimpleNamespace(time=lambda: time.time() + 3600),
        print=lambda *values: printed.append(values),
    )

    assert sorted(click for _, _, click in printed) == [*range(SENT)]


async def test_a_range_is_read_like_a_table(mq_cluster: LocalCluster) -> None:
    """The block of docs/how-to/consuming.md reads each queue from its begin to its end."""
    await send(mq_cluster, "Orders")
    printed: list[Any] = []
    await follow(
        "consuming.md", "RangeReader", mq_cluster, print=lambda *values: printed.append(values)
    )

    assert sum(len(offsets) for offsets, _ in printed) == SENT


async def test_members_pop(mq_cluster: LocalCluster) -> None:
    """`PopConsumer.run` of docs/how-to/consuming.md works."""
    await send(mq_cluster, "Orders")
    handle = Handler()
    await follow("consuming.md", "PopConsumer", mq_cluster, until=handle.is_done, handle=handle)


async def test_a_question_is_answered(mq_cluster: LocalCluster) -> None:
    """Both ends of a request in docs/how-to/consuming.md work."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: follow("consuming.md", 'group="answerers"', mq_cluster, until=lambda _: False)
        )
        names = await follow("consuming.md", 'group="askers"', mq_cluster)
        nursery.cancel_scope.cancel()

    assert names["reply"].body == b"42 cents"


async def test_outputs_are_stored_with_the_offsets_of_their_inputs(
    mq_cluster: LocalCluster,
) -> None:
    """The block of docs/how-to/exactly-once.md stores a bill and a mail for each order."""
    await send(mq_cluster, "Orders")
    mails: list[bytes] = []

    def mail_for(order: Any) -> bytes:
        mails.append(order.body)
        return b"mail " + bytes(order.body)

    await follow(
        "exactly-once.md",
        "consumer.transaction(producer)",
        mq_cluster,
        until=lambda names: len(mails) == SENT and names["transaction"].results,
        bill_for=lambda order: b"bill " + order.body,
        mail_for=mail_for,
    )
    messages = await stored(mq_cluster, "Bills", "Mails", count=2 * SENT)

    assert sorted(message.body for message in messages) == sorted(
        b"%s %d" % (kind, number) for kind in (b"bill", b"mail") for number in range(SENT)
    )


async def test_objects_are_sent_and_received(mq_cluster: LocalCluster) -> None:
    """The codec of docs/how-to/hooks.md sends and receives objects."""
    printed: list[int] = []
    await follow(
        "hooks.md",
        "msgspec_codec(Order)",
        mq_cluster,
        until=lambda _: printed,
        print=printed.append,
    )

    assert printed == [7]


async def test_an_interceptor_changes_what_is_sent(mq_cluster: LocalCluster) -> None:
    """`stamp` of docs/how-to/hooks.md changes messages, with another interceptor inside."""

    async def measure(message: Message, hand_on: Any) -> Any:
        return await hand_on(message)

    names = await follow("hooks.md", "def stamp", mq_cluster, replace=replace, measure=measure)
    async with Producer(
        mq_cluster.namesrv_addr, "P", interceptors=[names["stamp"], measure]
    ) as producer:
        await producer.send(Message("Orders", b"1"))
    (message,) = await stored(mq_cluster, "Orders", count=1)

    assert message.properties["source"] == "shop"


async def test_an_interceptor_measures_handlers(mq_cluster: LocalCluster) -> None:
    """`measure` of docs/how-to/hooks.md is called once for each message."""
    await send(mq_cluster, "Orders")
    seconds: list[float] = []
    names = await follow(
        "hooks.md",
        "def measure",
        mq_cluster,
        time=time,
        seconds=SimpleNamespace(observe=seconds.append),
    )
    handle = Handler(signals=True)
    async with mq_cluster.consumer(
        "billing", {"Orders": "*"}, interceptors=[names["measure"]]
    ) as consumer:
        await mqclient.run_until_signal(lambda: consumer.run(handle), consumer)

    assert len(seconds) == SENT


@pytest.mark.parametrize(
    ("page", "has"),
    [("hooks.md", "contrib.opentelemetry import"), ("hooks.md", "contrib.prometheus import")],
)
async def test_clients_are_made_with_traces_and_metrics(
    page: str, has: str, mq_cluster: LocalCluster
) -> None:
    """Clients of docs/how-to/hooks.md have traces and metrics; tests/unit/local tests those."""
    await follow(page, has, mq_cluster)


async def test_each_failure_is_told(mq_cluster: LocalCluster) -> None:
    """`on_error` of docs/how-to/hooks.md counts, and gives up after its fifth."""
    await send(mq_cluster, "Orders")
    failed: list[str] = []

    async def handle(message: Any) -> None:
        if message.body == b"3":
            raise ValueError(message.body)

    def labels(name: str) -> SimpleNamespace:
        return SimpleNamespace(inc=lambda: failed.append(name))

    async with mq_cluster.consumer("billing", {"Orders": "*"}, retry_delays_s=[0.5]) as consumer:
        with pytest.raises(ValueError, match="3"):
            await follow(
                "hooks.md",
                "def on_error",
                mq_cluster,
                consumer=consumer,
                handle=handle,
                failures=SimpleNamespace(labels=labels),
            )

    assert failed == ["ValueError"] * 6


async def test_a_table_is_sent(
    mq_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block of docs/how-to/bulk.md sends the rows of a Parquet file."""
    monkeypatch.chdir(tmp_path)
    columns = {"body": [b"1", b"2"], "customer": ["ann", None], "kind": ["new", "old"]}
    pq.write_table(pa.table(columns), "orders.parquet")
    await follow("bulk.md", "ParquetFile", mq_cluster)

    messages = await stored(mq_cluster, "Orders", count=2)
    assert sorted((message.body, message.tags) for message in messages) == [
        (b"1", "new"),
        (b"2", "old"),
    ]


async def test_a_transaction_is_delivered_when_its_block_ends(mq_cluster: LocalCluster) -> None:
    """The example in the docstring of `Producer.transaction` delivers when its block ends."""

    async def checker(_: object) -> None:
        raise AssertionError("never asked")

    async with mq_cluster.producer("P", checker=checker) as producer:
        await follow("api.md", "producer.transaction(", mq_cluster, producer=producer)

    (message,) = await stored(mq_cluster, "Orders", count=1)
    assert message.keys == "o-1"


async def test_a_cluster_under_trio_loses_its_leader() -> None:
    """`local_cluster` of docs/how-to/testing.md loses its leader."""
    run = compiled("testing.md", "import local_cluster\n", "")
    names: dict[str, Any] = {}
    await run(names)

    assert names["cluster"].groups == ("broker-a",)


def test_a_cluster_under_asyncio_loses_its_leader() -> None:
    """`local_cluster_on_asyncio` of docs/how-to/testing.md loses its leader in virtual time."""
    run = compiled("testing.md", "local_cluster_on_asyncio\n", "")
    names: dict[str, Any] = {}
    loop = VirtualLoop()
    try:
        loop.run_until_complete(run(names))
    finally:
        loop.close()

    assert names["cluster"].groups == ("broker-a",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    """A cluster on loopback, for programs."""
    with local_cluster_in_thread(replicas=1) as cluster:
        yield cluster


def program(page: str, has: str, cluster: ThreadedCluster, *arguments: str, then: str = "") -> str:
    """Run a block as a program of its own. Returns what it printed."""
    text = block_of(page, has).text.replace(OF_THE_PAGES, cluster.namesrv_addr)
    done = subprocess.run(
        [sys.executable, "-c", text + then, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "NAMESRV": cluster.namesrv_addr},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_program_from_kafka_sends_and_reads(cluster: ThreadedCluster) -> None:
    """The program of docs/how-to/from-kafka.md sends and reads ten orders."""
    printed = program("from-kafka.md", "asyncio.run(main())", cluster)

    assert printed.count("sent ") == printed.count("got ") == 10


def test_a_program_administers(cluster: ThreadedCluster) -> None:
    """The program of docs/reference/mqadmin.md administers topics and groups."""
    assert re.fullmatch(r"\d+ \[.*\]\n", program("mqadmin.md", "import Admin", cluster))
    with cluster.admin() as admin:
        assert len(admin.topics.status("Orders").queues) == 8


def test_a_topic_is_copied_to_another_cluster(cluster: ThreadedCluster) -> None:
    """The program of docs/how-to/migrate.md copies a topic with its keys."""
    with cluster.producer("P") as producer, local_cluster_in_thread(replicas=1) as other:
        producer.send(Message("Copied", b"1", keys="k1", tags="new"))
        program(
            "migrate.md", "migration", cluster, cluster.namesrv_addr, other.namesrv_addr, "Copied"
        )
        with other.consumer("G", {"Copied": "*"}) as consumer:
            (message,) = consumer.poll(timeout_s=PATIENCE_S)

    assert (message.body, message.keys, message.tags) == (b"1", "k1", "new")


def test_a_program_loses_the_leader_of_its_own_cluster(cluster: ThreadedCluster) -> None:
    """`local_cluster_in_thread` of docs/how-to/testing.md loses its leader."""
    program("testing.md", "import local_cluster_in_thread\n", cluster)


def test_a_program_logs(cluster: ThreadedCluster) -> None:
    """The program of docs/how-to/logging.md logs its own lines, and warnings of the client."""
    then = "logging.info('mine')\nlogging.getLogger('mqclient.x').info('not shown')"
    printed = program("logging.md", "basicConfig", cluster, then=then)

    assert "root INFO mine" in printed
    assert "not shown" not in printed


@pytest.mark.parametrize(
    ("page", "has"), [("consuming.md", "gc.freeze()"), ("log-tests.md", "OnDisk")]
)
def test_a_block_runs(page: str, has: str, cluster: ThreadedCluster) -> None:
    """Blocks that set the collector, or give names for a test of a log, run."""
    program(page, has, cluster)
