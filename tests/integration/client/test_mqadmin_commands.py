"""Commands of our `mqadmin` against three real brokers, as a table and as JSON.

One cluster, one producer and one consumer that stay connected, and for each command its arguments
and what its result must show. A command that is missing in the list fails a test. They are called
here as their process calls them; a few tests start the process.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import trio
from anyio.from_thread import start_blocking_portal
from clusters import new_cluster
from loops import both_loops

from dledger.testing.logs import capture_logs
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import serving
from mqclient import Admin, Consumer, Message, NoRoute, Producer, SendResult
from mqclient.admin import UnknownTarget
from mqclient.commands.mqadmin import COMMANDS, main

#: Commands with tests of their own: some ask no cluster, or would change who leads or belongs to
#: it, or leave files; those for users need passwords in files.
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
        for topic in ("Orders", "Reading"):
            await admin.topics.update(topic, read_queues=2, write_queues=2)
        (leader, *_) = await admin.brokers.list()
    await give_one_up(namesrv)
    async with (
        Producer(namesrv, "PG") as producer,
        Consumer(namesrv, "CG", {"Orders": "TagA || TagB"}) as consumer,
    ):
        message = Message("Orders", b"hello", keys="key1 key2", tags="TagA")
        sent = await producer.send(message, queue_id=1)
        await producer.send_many("Reading", [b"%d" % number for number in range(70)], queue_id=0)
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
    """A running cluster with clients in a thread, for the module's tests."""
    with new_cluster(tmp_path_factory.mktemp("commands"), namesrvs=2).running() as cluster:
        with start_blocking_portal("trio") as portal:
            clients, made = portal.start_task(prepare, cluster)
            yield made
            clients.cancel()
        assert cluster.stop() == []


def level(members: Any, _: Scene) -> bool:
    """A single member leads and lags behind nobody, and all members name it."""
    (leader,) = [member for member in members if member["role"] == "leader"]
    return (
        [member["node_id"] for member in members] == ["n0", "n1", "n2"]
        and {member["leader_id"] for member in members} == {leader["node_id"]}
        and {member["fenced"] for member in members} == {None}
        and leader["lag_entries"] == 0
        and leader["last_index"] >= leader["commit_index"] >= leader["applied_index"] > 0
    )


def registered(brokers: Any, scene: Scene) -> bool:
    """The leader first, and followers of the same term."""
    return (
        [broker["role"] for broker in brokers] == ["leader", "follower", "follower"]
        and {broker["address"] for broker in brokers}
        == {node.address for node in scene.cluster.layout.nodes}
        and len({broker["term"] for broker in brokers}) == 1
    )


def texts(*numbers: int) -> Callable[[Any, Scene], bool]:
    """A check for exactly the messages with these numbers, in this order."""
    return lambda result, _: [int(message["text"]) for message in result] == [*numbers]


class Step(NamedTuple):
    """A call of a command: its words, a check of `result`, and words of the table.

    `again` makes what a deletion needs, before it is called for the second time.
    """

    line: str
    check: Callable[[Any, Scene], bool]
    shows: str
    again: str = ""


#: In this order; {} in a line is filled in from the scene: leader, id, place.
STEPS = [
    Step("clusterList", registered, "CLUSTER BROKER ID ADDRESS ROLE"),
    Step("raftStatus -b broker-a", level, "NODE ADDRESS ROLE TERM LEADER"),
    Step("brokerStatus -b {leader}", lambda r, s: "putTps" in r[0]["figures"], "putTps"),
    Step(
        "brokerStatus -b broker-a",
        lambda r, s: [each["figures"]["brokerRole"] for each in r] == ["SYNC_MASTER"],
        "brokerRole SYNC_MASTER",
    ),
    Step("brokerStatus -c DefaultCluster", lambda r, s: len(r) >= 1, "brokerRole SYNC_MASTER"),
    Step("stats", lambda r, s: "messages_in_total" in r[0]["names"], " of 0 minutes"),
    Step("stats -b {leader} -f connections", lambda r, s: len(r) == 1, "connections"),
    Step("topicList", lambda r, s: "Orders" in [t["topic"] for t in r], "Orders user"),
    Step(
        "topicRoute -t Orders",
        lambda r, s: (
            [(g["read_queues"], g["write_queues"], g["perm"]) for g in r["groups"]] == [(2, 2, 6)]
            and ("0" in r["groups"][0]["addresses"], len(r["groups"][0]["addresses"])) == (True, 3)
        ),
        "read, write",
    ),
    Step(
        "topicStatus -t Orders",
        lambda r, s: (r["messages"], [q["max_offset"] for q in r["queues"]]) == (1, [0, 1]),
        "1 message in 2 queues",
    ),
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
        lambda r, s: (
            (r["members"], r["lag"]) == (1, 0)
            and {(q["broker_offset"], q["consumer_offset"]) for q in r["queues"]} >= {(1, 1)}
        ),
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
    Step("consumeMessage -t Reading", texts(*range(70)), "70 messages"),
    Step("consumeMessage -t Reading -c 40", texts(*range(40)), "40 messages"),
    Step("consumeMessage -t Reading --offset 65", texts(*range(65, 70)), "5 messages"),
    Step("consumeMessage -t Reading --offset=-3", texts(67, 68, 69), "3 messages"),
    Step("consumeMessage -t Reading -i 1", texts(), "0 messages"),
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
    """A command's exit status and output."""

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
    """A command shows the same in both forms; a repeated change succeeds.

    A repeated deletion is an error, since the name may be mistyped.
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
    assert step.shows in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("topicStatus -t Nope", 1, "mqadmin updateTopic -t Nope"),
        ("topicList -c Nope", 1, "there are DefaultCluster/broker-a"),
        ("updateTopic -t T -b nope", 1, "there are DefaultCluster/broker-a"),
        ("updateTopic -t topic!", 1, "topic!"),
        ("updateTopic -t T -r 0", 2, "Must be >= 1"),
        ("topicStatus", 2, "--topic"),
        ("noSuchCommand", 2, "clusterList"),
        ("topicList -o xml", 2, '"table", "json"'),
        ("topicList -n nonsense", 2, "host:port"),
        ("topicList -n 127.0.0.1:1", 1, "mqnamesrv"),
        ("sendMessage -t T -p x -n 127.0.0.1:1", 1, "mqnamesrv"),
        ("consumeMessage -t T --offset soon", 2, "earliest"),
        ("consumerProgress -g nobody", 1, "there is no consumer group 'nobody'"),
        ("transferLeader -b broker-a --to n9", 1, "n9 can't take over"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(
    scene: Scene, line: str, status: int, says: str
) -> None:
    """A wrong command line has status 2, a refused change status 1, and stdout is empty."""
    done = run(scene, line)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.startswith("mqadmin: ")
    assert says in done.stderr


@both_loops
async def test_the_admin_runs_under_either_event_loop_and_raises_its_own_errors(
    scene: Scene,
) -> None:
    """An error comes out of the `async with` block as it is, in no ExceptionGroup."""

    async def use() -> None:
        async with Admin(scene.cluster.layout.namesrv_addr) as admin:
            assert "TBW102" in {info.topic for info in await admin.topics.list()}
            await admin.topics.route("Nope")

    with pytest.raises(NoRoute):
        await use()


def test_one_name_server_is_enough_to_look_and_every_one_gets_changes(scene: Scene) -> None:
    """A question needs one name server, and a change is awaited at every one."""
    first, second = (server.address for server in scene.cluster.layout.namesrvs)
    run(scene, "updateTopic -t Everywhere")
    for namesrv in (first, second, f"127.0.0.1:1;{second}"):
        assert run(scene, f"topicRoute -t Everywhere -n {namesrv}").returncode == 0
    run(scene, "deleteTopic -t Everywhere")
    for namesrv in (first, second):
        assert run(scene, f"topicRoute -t Everywhere -n {namesrv}").returncode == 1


def python(scene: Scene, *words: str) -> subprocess.CompletedProcess[str]:
    """A process, pointed to the cluster."""
    environment = {**os.environ, "NAMESRV_ADDR": scene.cluster.layout.namesrv_addr}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, env=environment,
        check=False,
    )  # fmt: skip


def test_help_is_asked_for_as_in_rocketmq(scene: Scene) -> None:
    """`mqadmin help updateTopic` and `mqadmin updateTopic --help` are the same; by its process."""
    asked = python(scene, "-m", "mqclient.commands", "help", "updateTopic")
    assert asked.stdout == run(scene, "updateTopic --help").stdout
    assert (asked.returncode, "--readQueueNums" in asked.stdout) == (0, True)


def test_a_command_starts_without_what_it_does_not_need(scene: Scene) -> None:
    """Imports make a start slow: listing topics needs no records and no Raft."""
    program = """
import sys
from mqclient.commands.mqadmin import main
try:
    main(["topicList"])
finally:
    sys.stderr.write(" ".join(sorted(sys.modules)))
"""
    done = python(scene, "-c", program)
    assert "TBW102" in done.stdout
    slow = {
        *("numpy", "pysyncobj", "pyspark", "hypothesis", "mqclient.producing.producer"),
        "dledger.ledger.ledger",
    }
    assert slow.isdisjoint(done.stderr.split())


def result(scene: Scene, line: str) -> Any:
    """The output of a successful command, for programs."""
    done = run(scene, f"{line} -o json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["result"]


def test_leadership_is_handed_to_whom_the_operator_names(scene: Scene) -> None:
    """The named member leads the next term; asking again changes nothing."""
    before = result(scene, "raftStatus")
    target = next(member for member in before if member["role"] == "follower")
    words = ("transferLeader", "-b", "broker-a", "--to", target["node_id"], "-o", "json")
    for _ in range(2):
        done = python(scene, "-m", "mqclient.commands", *words)  # clients here log the change
        moved = json.loads(done.stdout)["result"]
        assert done.stderr == ""
        assert (moved["leader_id"], moved["address"]) == (target["node_id"], target["address"])
    assert {member["term"] for member in result(scene, "raftStatus")} == {before[0]["term"] + 1}
    trio.run(serving, scene.cluster)


def test_what_was_changed_outlives_the_leader(scene: Scene) -> None:
    """Settings and groups are entries of the log; the next leader has them. A topic that is made
    while the leader is dying is made by its successor, within the timeout."""
    run(scene, "updateBrokerConfig -k defaultTopicQueueNums -v 3")
    run(scene, "updateSubGroup -g Kept -r 2")
    run(scene, "updateSubGroup -g Gone")
    run(scene, "deleteSubGroup -g Gone")
    leader = result(scene, "clusterList")[0]["address"]
    node = next(node for node in scene.cluster.layout.nodes if node.address == leader)
    scene.cluster.kill(node.name)
    try:
        made = run(scene, "updateTopic -t Survivor --timeout 5")
        assert (made.returncode, made.stderr) == (0, "")
        assert run(scene, "sendMessage -t Survivor -p x").returncode == 0
        done = run(scene, "getBrokerConfig -b broker-a -o json --timeout 5")
        (config,) = json.loads(done.stdout)["result"]
        assert config["address"] != leader
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
