"""`mqadmin` says what a command left out, did not find, or could not do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio
from answers import mqadmin
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal
from trio.testing import MockClock

from dledger.net import connect_peer
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from mqbroker.testing.requests import heartbeat
from mqclient import Message
from mqclient.admin.session import change_each
from mqclient.errors import NoRoute, PartlyDone
from mqlocal import ThreadedCluster, local_cluster, local_cluster_in_thread

COUNT = 70


@pytest.fixture(scope="module")
def filled() -> Iterator[ThreadedCluster]:
    """A topic with two queues, one of which has messages with one key."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.admin() as admin:
            admin.topics.update("T", read_queues=2, write_queues=2)
        with cluster.producer("P") as producer:
            for number in range(COUNT):
                producer.send(Message("T", b"%d" % number, keys="k", tags="a"), queue_id=0)
            producer.send(Message("T", b"later", delay_s=9999))
            producer.send(Message("T", b"later", delay_s=9999))
        with cluster.consumer("C", {"T": "*"}) as consumer:
            consumer.poll(1, timeout_s=5)
            consumer.commit()
        yield cluster


def test_a_limit_that_cut_something_off_is_told(
    filled: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command with a limit says to people and to programs that the limit cut something off."""
    commands = {
        "consumeMessage -t T -c {}": COUNT,
        "printMsg -t T --count {}": COUNT,
        "queryMsgByKey -t T -k k -c {}": COUNT,
        "listScheduled -c {}": 2,
    }
    for line, there in commands.items():
        for asked in (1, there, there + 1):
            status, out, _ = mqadmin(capsys, filled, f"{line.format(asked)} -o json")
            told = json.loads(out)
            assert status == 0
            assert len(told["result"]) == min(asked, there)
            assert bool(told.get("left_out")) is (asked < there), line
            _, table, _ = mqadmin(capsys, filled, line.format(asked))
            assert ("more" in table) is (asked < there), line


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("consumeMessage -t T -b nope", 1, "it has broker-a/0, broker-a/1"),
        ("consumeMessage -t T -i 7", 1, "topic T has no queue 7 to read"),
        ("printMsg -t Nope", 1, "no route"),
        ("printMsg -t T -s a|b", 2, "expected \\* or TagA"),
        ("printMsg -t T -s a||", 2, "expected \\* or TagA"),
        ("queryMsgByKey -t T -k nope", 1, "no message of topic"),
        ("consumerProgress -g C -t Nope", 1, "no route"),
        ("deleteKvConfig -s A -k b", 1, "no entry A/b"),
        ("topicList -c Nope", 1, "no cluster 'Nope'"),
        ("statsAll -t Nope", 1, "no route"),
        ("getBrokerConfig -b nope", 1, "no broker 'nope'"),
        ("wipeWritePerm -b nope", 1, "no broker group 'nope'"),
        ("deadLetters -g Nope", 1, "no consumer group 'Nope'"),
        ("setConsumeMode -t T -g Nope -m POP", 1, "no consumer group 'Nope'"),
        ("getUser -u Nope", 1, "no user 'Nope'"),
        ("deleteUser -u Nope", 1, "no user 'Nope'"),
    ],
)
def test_what_is_not_there_is_not_shown_as_empty(
    filled: ThreadedCluster,
    capsys: pytest.CaptureFixture[str],
    line: str,
    status: int,
    said: str,
) -> None:
    """A name that does not exist is an error, and not an empty answer."""
    ended, out, err = mqadmin(capsys, filled, line)
    assert (ended, out) == (status, "")
    assert said.replace("\\", "") in err


async def test_a_letter_that_can_not_be_sent_stops_no_other(autojump_clock: MockClock) -> None:
    """A letter that can't be sent is reported and stays; the others are sent once."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.groups.update("G", retry_max_times=0)
        async with cluster.producer("P") as producer:
            for topic in ("T", "Gone", "T", "Gone", "T"):
                await producer.send(Message(topic, topic.encode()))
        async with cluster.consumer("G", {"T": "*", "Gone": "*"}, retry_delays_s=[1]) as consumer:
            seen = 0
            while seen < 5:
                for message in await consumer.poll(5, timeout_s=5):
                    await consumer.nack(message)
                    seen += 1
            await consumer.commit()
        while len(await admin.dead_letters.list("G")) < 5:
            pass
        await admin.topics.delete("Gone")

        tried = await admin.dead_letters.redrive("G")
        assert [each.text for each in tried if each.problem] == ["Gone", "Gone"]
        assert all("no route" in each.problem for each in tried if each.problem)
        assert [each.text for each in await admin.dead_letters.list("G")] == ["Gone", "Gone"]
        again = await admin.dead_letters.redrive("G")
        assert [each.text for each in again] == ["Gone", "Gone"]
        await admin.topics.update("Gone")
        last = await admin.dead_letters.redrive("G")
        assert [(each.text, each.problem) for each in last] == [("Gone", ""), ("Gone", "")]
        assert await admin.dead_letters.list("G") == ()
        assert (await admin.topics.status("T")).messages == 6
        assert (await admin.topics.status("Gone")).messages == 2


async def test_a_change_that_is_done_on_some_says_on_which(autojump_clock: MockClock) -> None:
    """A change is tried on all groups; its error says where it is done, and why not elsewhere."""

    async def change(name: str) -> str:
        if name.startswith("bad"):
            raise NoRoute(name, "use", "it is gone")
        return name.upper()

    assert await change_each(change, ["a", "b"], str) == ("A", "B")
    with pytest.raises(NoRoute):
        await change_each(change, ["bad"], str)
    with pytest.raises(PartlyDone, match="done on a, b, but not on bad1: .*; not on bad2: "):
        await change_each(change, ["bad1", "a", "bad2", "b"], str)


HOSTILE = "a\x1b[2J\x9b31m\u202e\r\nb"
SHOWN = [
    *("consumeMessage -t H", "printMsg -t H", "queryMsgByKey -t H -k k", "listScheduled"),
    "queryMsgByOffset -t H -b broker-a -i 0 --offset 0",
    *("consumerConnection -g HG", "consumerStatus -g HG", "consumerProgress", "topicList"),
    *("topicRoute -t H", "raftStatus", "clusterList", "brokerStatus", "getBrokerConfig"),
    *("statsAll", "listRates", "getNamesrvConfig", "topicStatus -t H", "deadLetters -g HG"),
]


async def beat(address: str, *, task_status: TaskStatus[None]) -> None:
    """Be a consumer with a hostile id and subscription, for a moment."""
    host, port = address.split(":")
    async with connect_peer(host, int(port)) as peer:
        body = heartbeat(HOSTILE, "HG", "H").replace(b'"*"', json.dumps(HOSTILE).encode())
        await peer.request(Command(RequestCode.HEART_BEAT, {}, body), 5)
        task_status.started()
        await trio.sleep_forever()


def test_what_strangers_have_written_is_shown_and_not_obeyed(
    filled: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts of other people's messages are escaped by every command, for people and programs."""
    with filled.producer("P") as producer, filled.admin() as admin:
        told = {"p": HOSTILE}
        message = Message(
            "H", HOSTILE.encode(), keys=["k", "\x1b[2J"], tags="\x9b", properties=told
        )
        producer.send(message, queue_id=0)
        message.delay_s = 999
        producer.send(message)
        (broker,) = admin.brokers.list()
    with start_blocking_portal("trio") as portal:
        stranger, _ = portal.start_task(beat, broker.address)
        for line in SHOWN:
            for form in ("table", "json"):
                _, out, err = mqadmin(capsys, filled, f"{line} -o {form} --timeout 3")
                odd = [c for c in out + err if not c.isprintable() and c != "\n"]
                assert odd == [], line
                if "Connection" in line:
                    assert "x1b" in out or "u001b" in out
        stranger.cancel()
