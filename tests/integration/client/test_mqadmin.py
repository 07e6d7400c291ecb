"""`mqadmin` against two name servers and a group of three brokers, all real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports
from mqclient import Admin, Consumer, Message, NoRoute, Producer
from mqclient.admin.results import BrokerState

pytestmark = pytest.mark.slow

Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster for the whole module; every process is ended by its pid."""
    layout = plan(free_ports(ports_needed(3, 1, 2)), nodes=3, groups=1, namesrvs=2)
    with Cluster.create(tmp_path_factory.mktemp("mqadmin") / "c", layout).running() as cluster:
        trio.run(serving, cluster)
        yield cluster
        assert cluster.stop() == []


@pytest.fixture
def mqadmin(cluster: Cluster) -> Tool:
    """The command, as a process of its own, pointed to the cluster by its environment."""

    def run(*arguments: str, namesrv: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NAMESRV_ADDR": namesrv or cluster.layout.namesrv_addr}
        return subprocess.run(
            [sys.executable, "-m", "mqclient.commands", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=environment,
        )

    return run


def result(done: subprocess.CompletedProcess[str], command: str) -> Any:
    """What `-o json` printed, out of its envelope; nothing else may be printed."""
    assert (done.returncode, done.stderr) == (0, "")
    envelope = json.loads(done.stdout)
    assert (envelope["schema"], envelope["command"]) == (1, command)
    return envelope["result"]


def table(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The words of each line that was printed."""
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


def states(cluster: Cluster) -> tuple[BrokerState, ...]:
    async def ask() -> tuple[BrokerState, ...]:
        async with Admin(cluster.layout.namesrv_addr) as admin:
            return await admin.brokers.list()

    return trio.run(ask)


def test_cluster_list_shows_every_broker_and_who_leads(mqadmin: Tool, cluster: Cluster) -> None:
    """One row a broker process: one leader with id 0, the others followers of the same term."""
    brokers = result(mqadmin("clusterList", "-o", "json"), "clusterList")
    assert [broker["role"] for broker in brokers] == ["leader", "follower", "follower"]
    assert {broker["address"] for broker in brokers} == {n.address for n in cluster.layout.nodes}
    assert len({broker["term"] for broker in brokers}) == 1
    lines = table(mqadmin("clusterList"))
    assert lines[0][:5] == ["CLUSTER", "BROKER", "ID", "ADDRESS", "ROLE"]
    assert lines[1][:5] == ["DefaultCluster", "broker-a", "0", brokers[0]["address"], "leader"]


def test_raft_status_shows_how_far_each_log_is(mqadmin: Tool, cluster: Cluster) -> None:
    """One row a member, by node id; the leader lags behind nobody, and all name it."""
    members = result(mqadmin("raftStatus", "-b", "broker-a", "-o", "json"), "raftStatus")
    assert [member["node_id"] for member in members] == ["n0", "n1", "n2"]
    (leader,) = [member for member in members if member["role"] == "leader"]
    assert {member["leader_id"] for member in members} == {leader["node_id"]}
    assert leader["lag_entries"] == 0
    assert leader["last_index"] >= leader["commit_index"] >= leader["applied_index"] > 0
    assert {member["fenced"] for member in members} == {None}
    lines = table(mqadmin("raftStatus"))
    assert lines[0][2:7] == ["NODE", "ADDRESS", "ROLE", "TERM", "LEADER"]
    assert len(lines) == 4


def test_leadership_is_handed_to_whom_the_operator_names(mqadmin: Tool, cluster: Cluster) -> None:
    """The named member leads the next term; asking again changes nothing; a stranger is refused."""
    before = result(mqadmin("raftStatus", "-o", "json"), "raftStatus")
    target = next(member for member in before if member["role"] == "follower")
    for _ in range(2):
        arguments = ("-b", "broker-a", "--to", target["node_id"], "-o", "json")
        moved = result(mqadmin("transferLeader", *arguments), "transferLeader")
        assert (moved["leader_id"], moved["address"]) == (target["node_id"], target["address"])
    after = result(mqadmin("raftStatus", "-o", "json"), "raftStatus")
    assert {member["term"] for member in after} == {before[0]["term"] + 1}
    refused = mqadmin("transferLeader", "-b", "broker-a", "--to", "n9")
    assert refused.returncode == 1
    assert "n9 can't take over" in refused.stderr
    trio.run(serving, cluster)


def test_a_topic_is_created_routed_used_and_deleted(mqadmin: Tool) -> None:
    """updateTopic, topicList, topicRoute, sendMessage, topicStatus, consumeMessage, deleteTopic."""
    made = result(
        mqadmin("updateTopic", "-t", "Orders", "-r", "4", "-w", "3", "-o", "json"), "updateTopic"
    )
    assert made == {"topic": "Orders", "brokers": ["broker-a"], "unreachable": []}
    assert ["Orders", "user"] in table(mqadmin("topicList", "-c", "DefaultCluster"))
    (group,) = result(mqadmin("topicRoute", "-t", "Orders", "-o", "json"), "topicRoute")["groups"]
    assert (group["read_queues"], group["write_queues"], group["perm"]) == (4, 3, 6)
    assert ("0" in group["addresses"], len(group["addresses"])) == (True, 3)

    body = "price -5 %\twith [bold]markup[/bold] and ünïcode"
    arguments = ("-t", "Orders", "-p", body, "-k", "k1", "-c", "TagA", "-i", "2")
    sent = result(mqadmin("sendMessage", *arguments, "-o", "json"), "sendMessage")
    assert (sent["broker_name"], sent["queue_id"], sent["queue_offset"]) == ("broker-a", 2, 0)

    status = result(mqadmin("topicStatus", "-t", "Orders", "-o", "json"), "topicStatus")
    assert status["messages"] == 1
    assert [queue["max_offset"] for queue in status["queues"]] == [0, 0, 1, 0]
    assert table(mqadmin("topicStatus", "-t", "Orders"))[-1][:3] == ["1", "message", "in"]

    (read,) = result(mqadmin("consumeMessage", "-t", "Orders", "-o", "json"), "consumeMessage")
    assert (read["message_id"], read["text"], read["tags"]) == (sent["message_id"], body, "TagA")
    assert body.replace("\t", "\\t") in mqadmin("consumeMessage", "-t", "Orders").stdout

    assert mqadmin("deleteTopic", "-t", "Orders").returncode == 0
    gone = mqadmin("topicRoute", "-t", "Orders")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr.count("\n") == 1
    assert "updateTopic -t Orders" in gone.stderr


def test_messages_are_read_from_where_one_asks(mqadmin: Tool, cluster: Cluster) -> None:
    """From the start, from an offset, or the last few of each queue; never more than asked for."""

    async def send() -> None:
        async with Producer(cluster.layout.namesrv_addr, "PG") as producer:
            for number in range(70):
                await producer.send(Message("Reading", b"%d" % number), queue_id=0)

    mqadmin("updateTopic", "-t", "Reading", "-r", "2", "-w", "2")
    trio.run(send)

    def bodies(*arguments: str) -> list[int]:
        done = mqadmin("consumeMessage", "-t", "Reading", "-o", "json", *arguments)
        return [int(message["text"]) for message in result(done, "consumeMessage")]

    assert bodies() == list(range(70))
    assert bodies("-c", "40") == list(range(40))
    assert bodies("--offset", "65") == list(range(65, 70))
    assert bodies("--offset=-3") == [67, 68, 69]
    assert bodies("-i", "1") == []


def test_consumer_progress_shows_offsets_lag_and_members(mqadmin: Tool, cluster: Cluster) -> None:
    """While a member is connected and after it has left."""

    async def consume_some() -> Any:
        address = cluster.layout.namesrv_addr
        async with Producer(address, "PG") as producer:
            for number in range(10):
                await producer.send(Message("Progress", b"%d" % number), queue_id=0)
        async with Consumer(address, "CG", subscriptions={"Progress": "*"}) as consumer:
            consumed = 0
            while consumed < 10:
                consumed += len(await consumer.poll(10, 1.0))
            await consumer.commit()
            return await trio.to_thread.run_sync(
                lambda: result(
                    mqadmin("consumerProgress", "-g", "CG", "-t", "Progress", "-o", "json"),
                    "consumerProgress",
                )
            )

    mqadmin("updateTopic", "-t", "Progress", "-r", "1", "-w", "1")
    progress = trio.run(consume_some)
    assert (progress["group"], progress["members"], progress["lag"]) == ("CG", 1, 0)
    (queue,) = progress["queues"]
    assert (queue["broker_offset"], queue["consumer_offset"], queue["lag"]) == (10, 10, 0)
    listed = result(mqadmin("consumerProgress", "-o", "json"), "consumerProgress")
    assert [(group["group"], group["lag"]) for group in listed] == [("CG", 0)]
    unknown = mqadmin("consumerProgress", "-g", "nobody")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)


def test_broker_status_shows_figures_by_address_name_or_cluster(
    mqadmin: Tool, cluster: Cluster
) -> None:
    """RocketMQ's names for them, so that its dashboards' users find them."""
    address = cluster.layout.nodes[0].address
    (one,) = result(mqadmin("brokerStatus", "-b", address, "-o", "json"), "brokerStatus")
    assert "putTps" in one["figures"]
    (leader,) = result(mqadmin("brokerStatus", "-b", "broker-a", "-o", "json"), "brokerStatus")
    assert leader["figures"]["brokerRole"] == "SYNC_MASTER"
    lines = table(mqadmin("brokerStatus", "-c", "DefaultCluster"))
    assert ["broker-a", leader["address"], "brokerRole", "SYNC_MASTER"] in lines


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["topicStatus", "-t", "Nope"], 1, "mqadmin updateTopic -t Nope"),
        (["topicList", "-c", "Nope"], 1, "there are DefaultCluster/broker-a"),
        (["updateTopic", "-t", "T", "-b", "nope"], 1, "there are DefaultCluster/broker-a"),
        (["updateTopic", "-t", "bad topic!"], 1, "bad topic!"),
        (["updateTopic", "-t", "T", "-r", "0"], 2, "Must be >= 1"),
        (["topicStatus"], 2, "--topic"),
        (["noSuchCommand"], 2, "clusterList"),
        (["topicList", "-o", "xml"], 2, '"table", "json"'),
        (["topicList", "-n", "nonsense"], 2, "host:port"),
        (["topicList", "-n", "127.0.0.1:1"], 1, "mqnamesrv"),
        (["sendMessage", "-t", "T", "-p", "x", "-n", "127.0.0.1:1"], 1, "mqnamesrv"),
        (["consumeMessage", "-t", "T", "--offset", "soon"], 2, "earliest"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(
    mqadmin: Tool, arguments: list[str], status: int, says: str
) -> None:
    """Status 2 if the command line is wrong, 1 if the cluster can't do it; nothing on stdout."""
    done = mqadmin(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.startswith("mqadmin: ")
    assert says in done.stderr


def test_help_is_asked_for_as_in_rocketmq(mqadmin: Tool) -> None:
    """`mqadmin help updateTopic` and `mqadmin updateTopic --help` are the same."""
    asked = mqadmin("help", "updateTopic")
    assert (asked.returncode, asked.stdout) == (0, mqadmin("updateTopic", "--help").stdout)
    assert "--readQueueNums" in asked.stdout


def test_a_command_starts_without_what_it_does_not_need(cluster: Cluster) -> None:
    """What makes a start slow is what it imports: listing topics needs no records and no Raft."""
    program = f"""
import sys
from mqclient.commands.mqadmin import main
try:
    main(["topicList", "-n", {cluster.layout.namesrv_addr!r}])
finally:
    sys.stderr.write(" ".join(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "TBW102" in done.stdout
    slow = {
        "numpy",
        "pysyncobj",
        "pyspark",
        "hypothesis",
        "mqclient.producing.producer",
        "dledger.ledger.ledger",
    }
    assert slow.isdisjoint(done.stderr.split())


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_admin_runs_under_either_event_loop_and_raises_its_own_errors(
    cluster: Cluster, backend: str
) -> None:
    """An error comes out of the `async with` block as it is, in no ExceptionGroup."""

    async def use() -> None:
        async with Admin(cluster.layout.namesrv_addr) as admin:
            assert "TBW102" in {info.topic for info in await admin.topics.list()}
            await admin.topics.route("Nope")

    with pytest.raises(NoRoute):
        anyio.run(use, backend=backend)


def test_one_name_server_is_enough_to_look_and_every_one_gets_changes(
    mqadmin: Tool, cluster: Cluster
) -> None:
    """The first that answers is asked; a topic is there when all show it, gone when all forgot."""
    first, second = (server.address for server in cluster.layout.namesrvs)
    mqadmin("updateTopic", "-t", "Everywhere")
    for namesrv in (first, second, f"127.0.0.1:1;{second}"):
        assert mqadmin("topicRoute", "-t", "Everywhere", namesrv=namesrv).returncode == 0
    mqadmin("deleteTopic", "-t", "Everywhere")
    for namesrv in (first, second):
        assert mqadmin("topicRoute", "-t", "Everywhere", namesrv=namesrv).returncode == 1


def test_commands_follow_the_leader_through_its_death(mqadmin: Tool, cluster: Cluster) -> None:
    """A topic created while the leader is dying is created by its successor, within the timeout."""
    leader = next(state.address for state in states(cluster) if state.role == "leader")
    node = next(node for node in cluster.layout.nodes if node.address == leader)
    cluster.kill(node.name)
    try:
        done = mqadmin("updateTopic", "-t", "Survivor", "--timeout", "5")
        assert (done.returncode, done.stderr) == (0, "")
        assert mqadmin("sendMessage", "-t", "Survivor", "-p", "x").returncode == 0
        after = {state.address: state.role for state in states(cluster)}
        assert "leader" in after.values()
        assert leader not in after
    finally:
        cluster.start([node.name])
        trio.run(serving, cluster)
