"""Every command of our `mqadmin` against three real brokers, as a table and as JSON.

One cluster, one producer and one consumer that stay connected, and for each command its arguments
and what its result must show. A command that is missing in the list fails the last test. They are
called here as their process calls them; `test_mqadmin` starts the processes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import trio
from anyio.from_thread import start_blocking_portal

from dledger.testing.logs import capture_logs
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports
from mqclient import Admin, Consumer, Message, Producer, SendResult
from mqclient.admin import UnknownTarget
from mqclient.commands.mqadmin import COMMANDS, main

pytestmark = pytest.mark.slow

#: One asks no cluster, others would change who leads or belongs to it, some leave files, users
#: need passwords in files: each has its own test.
ELSEWHERE = {
    *("verifyLog", "transferLeader", "addNode", "removeNode", "exportReplica"),
    *(name for name in COMMANDS if name.endswith("User") or "acl" in name.lower()),
    *("tls", "auditLog", "doctor", "bundle"),
}


class Scene(NamedTuple):
    """The cluster, what was sent to it, and which member leads it."""

    cluster: Cluster
    sent: SendResult
    leader: str


async def prepare(
    cluster: Cluster, *, task_status: trio.TaskStatus[Scene] = trio.TASK_STATUS_IGNORED
) -> None:
    """A topic with one message, read by a consumer that stays; so does the producer."""
    await serving(cluster)
    namesrv = cluster.layout.namesrv_addr
    async with Admin(namesrv) as admin:
        await admin.topics.update("Orders", read_queues=2, write_queues=2)
        (leader, *_) = await admin.brokers.list()
    await give_one_up(namesrv)
    async with (
        Producer(namesrv, "PG") as producer,
        Consumer(namesrv, "CG", {"Orders": "TagA || TagB"}) as consumer,
    ):
        message = Message("Orders", b"hello", keys="key1 key2", tags="TagA")
        sent = await producer.send(message, queue_id=1)
        while not await consumer.poll(1, 1.0):
            pass
        await consumer.commit()
        await known_to_the_brokers(namesrv)
        task_status.started(Scene(cluster, sent, leader.address))
        await trio.sleep_forever()


async def give_one_up(namesrv: str) -> None:
    """A message in the dead letters of a group "DG"."""
    async with Producer(namesrv, "PG") as producer, Consumer(namesrv, "DG", {"Lost": "*"}) as dead:
        await producer.send(Message("Lost", b"hopeless"))
        while not (polled := await dead.poll(1, 1.0)):
            pass
        await dead.nack(polled[0], -1)


async def known_to_the_brokers(namesrv: str) -> None:
    """A producer tells a new leader of itself with its next heartbeat, within a second."""
    async with Admin(namesrv) as admin:
        with trio.fail_after(10):
            while True:
                with suppress(UnknownTarget):
                    await admin.clients.producers("PG", "Orders")
                    return
                await trio.sleep(0.1)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Everything running, the clients in a thread, as long as the module's tests last."""
    layout = plan(free_ports(ports_needed(3, 1, 2)), nodes=3, groups=1, namesrvs=2)
    with Cluster.create(tmp_path_factory.mktemp("commands") / "c", layout).running() as cluster:
        with start_blocking_portal("trio") as portal:
            clients, made = portal.start_task(prepare, cluster)
            yield made
            clients.cancel()
        assert cluster.stop() == []


class Step(NamedTuple):
    """One call of a command: words of the command line, a check of `result`, words of the table.

    `again` makes what a deletion needs, before it is called for the second time.
    """

    line: str
    check: Callable[[Any, Scene], bool]
    shows: str
    again: str = ""


#: In this order; {} in a line is filled in from the scene: leader, id, place.
STEPS = [
    Step("clusterList", lambda r, s: [b["role"] for b in r].count("leader") == 1, "leader"),
    Step("raftStatus", lambda r, s: len(r) == 3, "COMMITTED"),
    Step("brokerStatus -b {leader}", lambda r, s: "putTps" in r[0]["figures"], "putTps"),
    Step("stats", lambda r, s: "messages_in_total" in r[0]["names"], " of 0 minutes"),
    Step("stats -b {leader} -f connections", lambda r, s: len(r) == 1, "connections"),
    Step("topicList", lambda r, s: "Orders" in [t["topic"] for t in r], "Orders"),
    Step("topicRoute -t Orders", lambda r, s: r["groups"][0]["write_queues"] == 2, "read, write"),
    Step("topicStatus -t Orders", lambda r, s: r["messages"] == 1, "1 message in 2 queues"),
    Step("topicClusterList -t Orders", lambda r, s: r == ["DefaultCluster"], "DefaultCluster"),
    Step(
        "updateTopic -t Made -r 3 -w 3", lambda r, s: r["brokers"] == ["broker-a"], "is on broker-a"
    ),
    Step(
        "updateTopic -t Ordered -r 2 -w 2 --order",
        lambda r, s: r["topic"] == "Ordered",
        "is on broker-a",
    ),
    Step(
        "topicRoute -t Ordered",
        lambda r, s: r["order_config"] == "broker-a:2",
        "queue order: broker-a:2",
    ),
    Step(
        "deleteTopic -t Ordered",
        lambda r, s: r["topic"] == "Ordered",
        "deleted on broker-a",
        again="updateTopic -t Ordered",
    ),
    Step(
        "updateSubGroup -g Team -r 5 -d false",
        lambda r, s: (
            (r["config"]["retryMaxTimes"], r["config"]["consumeBroadcastEnable"]) == (5, False)
        ),
        "retryMaxTimes",
    ),
    Step(
        "updateSubGroup -g Team -q 2",
        lambda r, s: (r["config"]["retryMaxTimes"], r["config"]["retryQueueNums"]) == (5, 2),
        "group Team is on broker-a",
    ),
    Step(
        "updateTopic -t Made -a +send.rate.messages=100",
        lambda r, s: r["topic"] == "Made",
        "is on broker-a",
    ),
    Step(
        "updateSubGroup -g Team --attributes +consume.rate.bytes=1000",
        lambda r, s: r["config"]["attributes"] == {"consume.rate.bytes": "1000"},
        "consume.rate.bytes",
    ),
    Step(
        "listRates",
        lambda r, s: (
            [(each["name"], each["messages_per_s"], each["bytes_per_s"]) for each in r]
            == [("Made", 100, None), ("Team", None, 1000)]
        ),
        "HELD BACK",
    ),
    Step("listScheduled", lambda r, s: r == [], "delayed message"),
    Step(
        "setConsumeMode -g Team -t Orders -m POP -q 2",
        lambda r, s: (r["mode"], r["share"], list(r["brokers"])) == ("POP", 2, ["broker-a"]),
        "members of Team pop Orders on broker-a",
    ),
    Step(
        "deleteSubGroup -g Team -r true",
        lambda r, s: r["group"] == "Team",
        "deleted on",
        again="updateSubGroup -g Team",
    ),
    Step(
        "consumerProgress -g CG -t Orders",
        lambda r, s: (r["members"], r["lag"]) == (1, 0),
        "lag 0",
    ),
    Step("consumerProgress", lambda r, s: r[0]["group"] == "CG", "CLUSTERING"),
    Step(
        "deadLetters -g DG",
        lambda r, s: [(m["text"], m["origin_topic"]) for m in r] == [("hopeless", "Lost")],
        "1 dead letter of group DG",
    ),
    Step("redriveDeadLetters -g DG --dry-run", lambda r, s: len(r) == 1, "would be sent again"),
    Step(
        "redriveDeadLetters -g DG",
        lambda r, s: [bool(m["redriven_as"]) for m in r] == [True],
        "0 dead letters of group DG sent again",
    ),
    Step(
        "consumerConnection -g CG",
        lambda r, s: (
            len(r["clients"]) == 1
            and {"topic": "Orders", "expression": "TagA || TagB", "expression_type": "TAG"}
            in r["subscriptions"]
        ),
        "subscribes to Orders: TagA || TagB",
    ),
    Step("producerConnection -g PG -t Orders", lambda r, s: len(r["clients"]) == 1, "1 producer"),
    Step(
        "consumerStatus -g CG",
        lambda r, s: r[0]["running_info"]["mqTable"]["Orders/broker-a/1"]["commitOffset"] == 1,
        "commitOffset=1",
    ),
    Step("statsAll -t Orders", lambda r, s: (r[0]["group"], r[0]["in_24_h"]) == ("CG", 1), "CG"),
    Step("queryMsgById -i {place}", lambda r, s: r[0]["text"] == "hello", "hello"),
    Step("queryMsgById -i {id} -t Orders", lambda r, s: r[0]["text"] == "hello", "hello"),
    Step(
        "queryMsgByKey -t Orders -k key2",
        lambda r, s: [m["message_id"] for m in r] == [s.sent.message_id],
        "1 message",
    ),
    Step(
        "queryMsgByUniqueKey -t Orders -i {id}",
        lambda r, s: [m["position"] for m in r] == [s.sent.position],
        "1 message",
    ),
    Step(
        "queryMsgByOffset -t Orders -b broker-a -i 1 --offset 0",
        lambda r, s: r[0]["properties"]["KEYS"] == "key1 key2",
        "key1 key2",
    ),
    Step("sendMessage -t Made -p x -c T2", lambda r, s: r["topic"] == "Made", "broker-a"),
    Step("consumeMessage -t Made", lambda r, s: {m["text"] for m in r} == {"x"}, "T2"),
    Step("printMsg -t Made -s T2||T3", lambda r, s: r[0]["tags"] == "T2", "T2"),
    Step("printMsg -t Made -s T9", lambda r, s: r == [], "0 messages"),
    Step("printMsg -t Made -e 1", lambda r, s: r == [], "0 messages"),
    Step(
        "resetOffsetByTime -g Late -t Made -s now",
        lambda r, s: sum(queue["offset"] for queue in r) >= 1,
        "goes on there",
    ),
    Step(
        "resetOffsetByTime -g Late -t Made -s 2020-01-01#00:00:00:000",
        lambda r, s: [queue["offset"] for queue in r] == [0, 0, 0],
        "goes on there",
    ),
    Step(
        "getBrokerConfig -b {leader}",
        lambda r, s: r[0]["config"]["maxMessageSize"] == "4194304",
        "maxMessageSize",
    ),
    Step(
        "updateBrokerConfig -k maxMessageSize -v 70000",
        lambda r, s: r["brokers"] == ["broker-a"],
        "maxMessageSize is 70000",
    ),
    Step(
        "getBrokerConfig",
        lambda r, s: r[0]["config"]["maxMessageSize"] == "70000",
        "70000",
    ),
    Step(
        "getNamesrvConfig",
        lambda r, s: [one["config"]["bindAddress"] for one in r] == ["127.0.0.1"] * 2,
        "kvConfigPath",
    ),
    Step(
        "updateNamesrvConfig -k returnOrderTopicConfigToBroker -v false",
        lambda r, s: len(r["namesrvs"]) == 2,
        "is false on",
    ),
    Step("updateKvConfig -s N -k a -v b", lambda r, s: len(r["namesrvs"]) == 2, "N/a is set"),
    Step(
        "deleteKvConfig -s N -k a",
        lambda r, s: len(r["namesrvs"]) == 2,
        "N/a is deleted",
        again="updateKvConfig -s N -k a -v b",
    ),
    Step("wipeWritePerm -b broker-a", lambda r, s: not r[1]["writable"], "no"),
    Step("addWritePerm -b broker-a", lambda r, s: r[0]["topics"] >= 2, "yes"),
    Step("cleanExpiredCQ", lambda r, s: len(r["brokers"]) == 3, "3 brokers cleaned"),
    Step("cleanUnusedTopic -b {leader}", lambda r, s: r["brokers"] == [s.leader], "1 broker"),
]


class Done(NamedTuple):
    """What a command leaves: its exit status and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(scene: Scene, line: str, *more: str) -> Done:
    """The command, pointed to the cluster by its environment."""
    sent = scene.sent
    filled = line.format(
        leader=scene.leader, id=sent.message_id, place=sent.offset_message_id
    ).split()
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with (
        capture_logs(),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.dict(os.environ, NAMESRV_ADDR=scene.cluster.layout.namesrv_addr),
    ):
        try:
            main([*filled, *more])
        except SystemExit as ended:
            status = ended.code
    assert isinstance(status, int), status
    return Done(status, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.line)
def test_a_command_shows_the_truth_to_people_and_to_programs(scene: Scene, step: Step) -> None:
    """Both forms of one command; a change that is made twice is as good as once.

    Not so a deletion: of what is not there it is an error, since the name may be mistyped.
    """
    done = run(scene, step.line, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    envelope = json.loads(done.stdout)
    assert (envelope["schema"], envelope["command"]) == (1, step.line.split()[0])
    assert step.check(envelope["result"], scene), envelope["result"]
    if step.again:
        assert run(scene, step.line).returncode == 1
        assert run(scene, step.again).returncode == 0
    shown = run(scene, step.line)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert step.shows in shown.stdout


def test_what_was_changed_outlives_the_leader(scene: Scene) -> None:
    """Settings and groups are entries of the log; the next leader has them."""
    run(scene, "updateBrokerConfig -k defaultTopicQueueNums -v 3")
    run(scene, "updateSubGroup -g Kept -r 2")
    run(scene, "updateSubGroup -g Gone")
    run(scene, "deleteSubGroup -g Gone")
    node = next(node for node in scene.cluster.layout.nodes if node.address == scene.leader)
    scene.cluster.kill(node.name)
    try:
        done = run(scene, "getBrokerConfig -b broker-a -o json --timeout 5")
        (config,) = json.loads(done.stdout)["result"]
        assert config["address"] != scene.leader
        assert config["config"]["defaultTopicQueueNums"] == "3"
        kept = json.loads(run(scene, "updateSubGroup -g Kept -o json").stdout)["result"]["config"]
        assert kept["retryMaxTimes"] == 2
        new = json.loads(run(scene, "updateSubGroup -g Gone -o json").stdout)["result"]["config"]
        assert new["retryMaxTimes"] == 16
        route = run(scene, "topicRoute -t TBW102 -o json").stdout
        assert json.loads(route)["result"]["groups"][0]["write_queues"] == 3
    finally:
        scene.cluster.start([node.name])


def test_every_command_is_in_the_list() -> None:
    """A new one needs a step here."""
    assert {step.line.split()[0] for step in STEPS} == set(COMMANDS) - ELSEWHERE
