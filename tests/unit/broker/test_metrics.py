"""Metrics of a broker: RocketMQ's names and labels, true figures, and who tells them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from dledger.metrics.pages import Details
from dledger.metrics.requests import NoSuchName
from dledger.net import Peer
from dledger.remoting.codes import RequestCode
from mqbroker.config import BrokerConfig
from mqbroker.metrics import naming
from mqbroker.metrics.health import BrokerHealth
from mqbroker.metrics.page import BrokerFigures
from mqbroker.testing import MemoryBroker, served
from mqbroker.testing.requests import (
    GROUP,
    TOPIC,
    ask,
    commit,
    heartbeat,
    make_topic,
    produce_request,
    pull_request,
    send_request,
)

FIXED = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a", "member": "n0"}


class Scrape:
    """Samples of a page, as Prometheus parses it."""

    def __init__(self, pieces: Any) -> None:
        self.samples = [sample for family in parsed("".join(pieces)) for sample in family.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        (value,) = self.values(name, **labels)
        return value

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [
            {key: text for key, text in sample.labels.items() if key not in FIXED}
            for sample in self.samples
            if sample.name == name
        ]


@pytest.fixture
async def broker_and_peer(tmp_path: Path) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    """A leader with a topic; it is 60 s by its clock."""
    config = BrokerConfig(store_path_root_dir=str(tmp_path))
    async with served(tmp_path, config, clock_ms=lambda: 60_000) as (broker, peer):
        await make_topic(peer, queues=4)
        yield broker, peer


@pytest.fixture
def figures(broker: MemoryBroker) -> BrokerFigures:
    return BrokerFigures(broker.broker.sources, None)


async def test_messages_in_are_counted_by_topic_and_type(
    peer: Peer, figures: BrokerFigures
) -> None:
    """Messages in have a count, bytes of their records, and a histogram of mean sizes."""
    for key in "ab":
        await peer.request(produce_request(key), 5)
    await peer.request(send_request(bytes(5000)), 5)
    page = Scrape(figures.pieces())
    of = {"topic": TOPIC, "message_type": "normal", "is_system": "false"}
    assert page.labels("rocketmq_messages_in_total") == [of]
    assert page.value("rocketmq_messages_in_total", **of, **FIXED) == 7
    assert page.value("rocketmq_throughput_in_total", **of) > 5000
    assert page.value("rocketmq_message_size_count", **of) == 5
    assert page.value("rocketmq_message_size_bucket", **of, le="4096.0") == 4
    assert page.value("rocketmq_message_size_bucket", **of, le="+Inf") == 5


async def test_a_delayed_message_counts_when_it_is_delivered(
    broker: MemoryBroker, peer: Peer, figures: BrokerFigures
) -> None:
    """A delayed message counts as waiting first, and as come in when it is delivered."""
    delayed = send_request(b"later", i="TIMER_DELAY_MS\x013600000\x02")
    await peer.request(delayed, 5)
    page = Scrape(figures.pieces())
    assert page.values("rocketmq_messages_in_total") == []
    assert page.value("rocketmq_timing_messages", topic=TOPIC) == 1
    assert broker.machine.timers.owners.rows_by(0) == {TOPIC: 1}


async def test_lag_is_told_by_group_and_topic(peer: Peer, figures: BrokerFigures) -> None:
    """A group's lag is its messages in flight and its ready ones, each with an age."""
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    for key in "abc":
        await peer.request(produce_request(key, runs=[(0, 1)]), 5)
    await peer.request(pull_request(0, max_msg_nums=2), 5)
    await peer.request(produce_request("d", runs=[(0, 1)]), 5)
    await commit(peer, 1, 0)
    page = Scrape(figures.pieces())
    of = {"consumer_group": GROUP, "topic": TOPIC, "is_retry": "false", "is_system": "false"}
    lag, flying, ready = (
        page.value(f"rocketmq_consumer_{name}_messages", **of)
        for name in ("lag", "inflight", "ready")
    )
    assert (lag, flying + ready) == (3, 3)
    assert flying >= 1
    assert page.value("dledger_consumer_group_members", consumer_group=GROUP) == 1
    assert page.value("rocketmq_messages_out_total", consumer_group=GROUP, topic=TOPIC) >= 1


async def test_the_lag_of_a_group_stays_when_its_members_go(
    peer: Peer, figures: BrokerFigures
) -> None:
    """A group's lag outlasts its last member: an alert must not fall silent."""
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    await peer.request(produce_request("a", runs=[(0, 3)]), 5)
    before = Scrape(figures.pieces()).value(
        "rocketmq_consumer_lag_messages", consumer_group=GROUP, topic=TOPIC
    )
    await ask(peer, RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP)
    page = Scrape(figures.pieces())
    after = page.value("rocketmq_consumer_lag_messages", consumer_group=GROUP, topic=TOPIC)
    assert (before, after) == (3, 3)
    assert page.value("dledger_consumer_group_members", consumer_group=GROUP) == 0
    (queue,) = [
        sample
        for sample in Scrape(figures.details(Details((TOPIC,), (GROUP,)))).samples
        if sample.name == "dledger_consumer_queue_state" and sample.labels["queue_id"] == "0"
    ]
    assert queue.labels["state"] == "no members"
    await ask(peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP)
    assert Scrape(figures.pieces()).values("rocketmq_consumer_lag_messages") == []


async def test_only_the_leader_tells_traffic_and_lag(
    broker: MemoryBroker, peer: Peer, figures: BrokerFigures
) -> None:
    """Traffic and lag are told by the leader alone, other figures by each replica."""
    await peer.request(produce_request("a"), 5)
    assert Scrape(figures.pieces()).value("dledger_raft_role") == 1
    broker.ledger.follow("n1")
    page = Scrape(figures.pieces())
    assert page.value("dledger_raft_role") == 0
    assert page.values("rocketmq_messages_in_total") == []
    assert page.values("rocketmq_consumer_lag_messages") == []
    assert page.value("rocketmq_topic_number") > 0
    assert list(figures.details(Details((TOPIC,), ()))) == [
        "# n0 does not lead broker-a: ask its leader (n1)\n"
    ]


async def test_details_of_what_does_not_exist_are_refused_with_a_reason(
    broker: MemoryBroker, peer: Peer, figures: BrokerFigures
) -> None:
    """Details of a topic or a group that does not exist are refused with its name, by followers
    too.

    If a part exists, the page has that part and names the missing one, also for a group that reads
    none of the topics.
    """
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    await make_topic(peer, "Other")
    for wanted, missing in (
        (Details(("Typo",), ()), "no topic 'Typo'"),
        (Details((), ("typo",)), "no consumer group 'typo'"),
        (Details((TOPIC,), ("typo", "a\nb")), r"no consumer group 'typo', 'a\\nb'"),
        (Details(("Typo",), (GROUP,)), "no topic 'Typo'"),
    ):
        with pytest.raises(NoSuchName, match=missing):
            list(figures.details(wanted))
    text = "".join(figures.details(Details((TOPIC, "Ty\npo"), (GROUP, "typo"))))
    comments = [line for line in text.splitlines() if line[:7] not in ("# HELP ", "# TYPE ")]
    assert [line for line in comments if line.startswith("#")] == [
        r"# broker group broker-a has no topic 'Ty\npo'",
        "# broker group broker-a has no consumer group 'typo'",
    ]
    page = Scrape(text)
    assert len(page.values("dledger_queue_end_offset", topic=TOPIC)) == 4
    assert len(page.values("dledger_consumer_queue_lag_messages")) == 4
    other = "".join(figures.details(Details(("Other",), (GROUP,))))
    assert f"# consumer group {GROUP!r} reads none of these topics\n" in other
    broker.ledger.follow("n1")
    with pytest.raises(NoSuchName):
        list(figures.details(Details(("Typo",), ())))


async def test_a_deleted_topic_is_not_told_any_more(peer: Peer, figures: BrokerFigures) -> None:
    """A deleted topic's series end at once."""
    await peer.request(produce_request("a"), 5)
    await ask(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
    assert Scrape(figures.pieces()).values("rocketmq_messages_in_total") == []


async def test_a_page_stays_small_with_many_topics(
    peer: Peer, figures: BrokerFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page shows the topics with most traffic; the others are summed up and counted."""
    figures._names.topics._names_max = 3
    for number in range(10):
        await peer.request(produce_request("k", f"T{number}", [(0, 10 - number)]), 5)
    page = Scrape(figures.pieces())
    shown = {each["topic"] for each in page.labels("rocketmq_messages_in_total")}
    assert shown == {"T0", "T1", "T2", "_other"}
    assert page.value("rocketmq_messages_in_total", topic="_other") == sum(range(1, 8))
    assert page.value("dledger_metrics_folded", what="topics") >= 7


async def test_a_replica_tells_whether_it_may_be_stopped(broker: MemoryBroker) -> None:
    """A replica's readiness and safety to stop follow its leader and its group's majority.

    A group of one would not go on; it is alive, and ready while it leads or hears its leader, and
    not while it only remembers one.
    """
    health = BrokerHealth(broker.broker.core)
    assert health.alive() is None
    assert health.ready() is None
    broker.ledger.follow("n1")
    assert health.ready() is None
    broker.ledger.hears_leader = False
    assert "no leader" in (health.ready() or "")
    page = Scrape(BrokerFigures(broker.broker.sources, None).pieces())
    assert page.value("dledger_raft_has_leader") == 0
    broker.ledger.hears_leader = True
    broker.ledger.follow(None)
    assert "no leader" in (health.ready() or "")


@pytest.mark.parametrize(
    ("number", "text"),
    [(413, "v5_0_0"), (412, "v5_0_0_snapshot"), (409, "v4_9_8"), (479, "v5_3_3"), (401, "v4_9_4")],
)
def test_versions_are_written_as_by_rocketmq(number: int, text: str) -> None:
    """Each release has two numbers, the first one of its snapshot."""
    assert naming.version(number) == text
