"""Tools say what they leave out, and where a change was not made, if a broker group is away."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from answers import mqadmin

from mqclient import Message
from mqlocal import ThreadedCluster, local_cluster_in_thread

AWAY = "broker-b"


@pytest.fixture(scope="module")
def halved() -> Iterator[ThreadedCluster]:
    """Two groups with a topic and a consumer group on both; one group is away."""
    with local_cluster_in_thread(replicas=1, groups=2) as cluster:
        with cluster.admin() as admin:
            admin.topics.update("T", read_queues=1, write_queues=1)
            admin.groups.update("C")
            admin.topics.update("Elsewhere", broker=AWAY)
        with cluster.producer("P") as producer:
            for queue in producer.prepare("T"):
                for _ in range(5):
                    producer.send(Message("T", b"x", keys="k"), selector=lambda *_, q=queue: q)
        with cluster.consumer("C", {"T": "*"}) as consumer:
            consumer.poll(1, timeout_s=5)
        cluster.kill(f"{AWAY}-n0")
        yield cluster


@pytest.mark.parametrize(
    "line",
    [
        *("topicStatus -t T", "topicRoute -t T", "topicList", "consumeMessage -t T", "statsAll"),
        *("printMsg -t T", "queryMsgByKey -t T -k k", "consumerProgress -g C", "consumerProgress"),
        *("listScheduled", "deadLetters -g C", "redriveDeadLetters -g C", "clusterList"),
        *("raftStatus", "brokerStatus", "getBrokerConfig", "listRates", "listUser", "listAcl"),
        *("topicList -c DefaultCluster", "clusterList -c DefaultCluster"),
    ],
)
def test_what_a_group_that_is_away_has_is_told_as_left_out(
    halved: ThreadedCluster, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """A list that lacks a group's rows says so, to people and to programs."""
    status, out, _ = mqadmin(capsys, halved, line)
    assert (status, out.count(f"not shown: what broker group {AWAY} has")) == (0, 1)
    status, out, _ = mqadmin(capsys, halved, f"{line} -o json")
    assert (status, [AWAY in text for text in json.loads(out)["left_out"]]) == (0, [True])


@pytest.mark.parametrize("line", ["brokerStatus -b broker-a", "getBrokerConfig -b broker-a"])
def test_a_question_about_another_group_leaves_nothing_out(
    halved: ThreadedCluster, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """A question about another group has a whole answer, without a note."""
    status, out, _ = mqadmin(capsys, halved, line)
    assert (status, AWAY in out) == (0, False)


@pytest.mark.parametrize("line", ["printMsg -t Elsewhere", "deleteTopic -t Elsewhere"])
def test_what_only_a_group_that_is_away_may_have_is_not_called_unknown(
    halved: ThreadedCluster, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """A topic that only an absent group may have is an error with the group's name."""
    status, out, err = mqadmin(capsys, halved, line)
    assert (status, out) == (1, "")
    assert f"{AWAY} may have it, and is away" in err


CHANGES = [
    *("updateTopic -t T -p 6", "updateTopic -t New", "updateTopic -t Ordered --order"),
    *("updateSubGroup -g C -r 3", "resetOffsetByTime -g C -t T -s 0", "deleteTopic -t New"),
    *("updateBrokerConfig -k maxMessageSize -v 3000000", "setConsumeMode -t T -g C -m POP"),
    "deleteSubGroup -g C",
]


def test_a_change_says_that_it_was_not_made_on_a_group_that_is_away(
    halved: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change is made on the other groups, with status 1, until an operator retires the group."""
    for line in CHANGES:
        status, out, err = mqadmin(capsys, halved, line)
        assert (status, out) == (1, ""), line
        assert f"done on broker-a, but not on {AWAY}: " in err
        assert "is away" in err
    with halved.admin() as admin:
        names = {info.topic for info in admin.topics.list()}
        assert "New" not in names
        assert admin.topics.route("Ordered").order_config == "broker-a:8"
        assert any(AWAY in text for text in admin.left_out)
    status, _, err = mqadmin(capsys, halved, f"updateTopic -t T -b {AWAY} -p 4")
    assert (status, "is away" in err) == (1, True)

    assert mqadmin(capsys, halved, f"wipeWritePerm -b {AWAY}")[0] == 0
    status, out, _ = mqadmin(capsys, halved, "updateTopic -t T -p 6")
    assert (status, "topic T is on broker-a" in out) == (0, True)
    assert mqadmin(capsys, halved, f"addWritePerm -b {AWAY}")[0] == 0
    assert mqadmin(capsys, halved, "updateTopic -t T -p 6")[0] == 1


@pytest.fixture(scope="module")
def headless() -> Iterator[ThreadedCluster]:
    """Two groups with equal topics, groups and users; one has lost its majority."""
    settings = {"dLegerSecret": "the word of this cluster", "adminAddresses": "127.0.0.0/8"}
    with local_cluster_in_thread(replicas=3, groups=2, settings=settings) as cluster:
        with cluster.admin() as admin:
            for topic in ("T", "Gone"):
                admin.topics.update(topic, read_queues=1, write_queues=1)
            for group in ("C", "Gone"):
                admin.groups.update(group)
            for user in ("ann", "bob"):
                admin.users.create(user, "a user's password")
        leader = cluster.leader(AWAY)
        for number in range(3):
            if f"{AWAY}-n{number}" != leader:
                cluster.kill(f"{AWAY}-n{number}")
        yield cluster


@pytest.mark.parametrize(
    "line",
    [
        *("deleteUser -u ann", "updateUser -u bob -s disable", "deleteSubGroup -g Gone"),
        *("setConsumeMode -t T -g C -m POP", "deleteTopic -t Gone", "updateSubGroup -g C -r 3"),
    ],
)
def test_a_group_without_a_leader_keeps_no_change_from_the_others(
    headless: ThreadedCluster, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """A change is made on the group with a leader, with status 1."""
    status, out, err = mqadmin(capsys, headless, f"{line} --timeout 1")
    assert (status, out) == (1, "")
    assert f"done on broker-a, but not on {AWAY}: " in err


@pytest.mark.parametrize(
    "line",
    [
        *("deleteUser -u Nobody", "deleteSubGroup -g Nobody", "deleteTopic -t Nobody"),
        "setConsumeMode -t T -g Nobody -m POP",
    ],
)
def test_what_only_a_group_without_a_leader_may_have_is_not_called_unknown(
    headless: ThreadedCluster, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """A change that only a group without a leader could make is its error, and not done."""
    status, out, err = mqadmin(capsys, headless, f"{line} --timeout 1")
    assert (status, out) == (1, "")
    assert (AWAY in err, "done on" in err, "there is no" in err) == (True, False, False)
