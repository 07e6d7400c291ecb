"""The commands of stock mqadmin, 4.9 and 5.x, unmodified: each does what it says."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
import trio
from clients import CLIENTS, Client, Missing, java

from chaos.cluster import Cluster
from chaos.probe import Probe
from client.peers import PeerPool

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

TIMEOUT_S = 150
COMMANDS = {
    "clusterList": r"broker-a +0 +{leader} +V4_9_8",
    "updateTopic -c DefaultCluster -t {topic} -r 4 -w 4": r"create topic to {leader} success",
    "topicList": r"^{topic}$",
    "topicRoute -t {topic}": r"\"brokerName\":\"broker-b\"",
    "topicClusterList -t {topic}": r"^DefaultCluster$",
    "sendMessage -t {topic} -p hello -k key1": r"SEND_OK",
    "topicStatus -t {topic}": r"broker-[ab] +\d +0 +1 ",
    "updateSubGroup -c DefaultCluster -g {group}": r"subscription group to {leader} success",
    "consumeMessage -t {topic} -c 8": r"MSGID: \w+",
    "printMsg -t {topic}": r"BODY: hello",
    "queryMsgByKey -t {topic} -k key1": r"^\w{{32,}} +\d +0",
    "brokerStatus -b {leader}": r"brokerVersionDesc +: V4_9_8",
    "getBrokerConfig -b {leader}": r"brokerName += +broker-a",
    "updateBrokerConfig -b {leader} -k maxMessageSize -v 4194304": r"update broker config success",
    "getNamesrvConfig": r"listenPort += +\d+",
    "updateKvConfig -s space -k name -v value": r"create or update kv config to namespace success",
    "deleteKvConfig -s space -k name": r"delete kv config from namespace success",
    "wipeWritePerm -b broker-a": r"wipe write perm of broker\[broker-a\] .* OK",
    "addWritePerm -b broker-a": r"add write perm of broker\[broker-a\] .* OK",
    "consumerProgress": r"^#Group",
    "resetOffsetByTime -g {group} -t {topic} -s -1": r"broker-b +\d +\d",
    "cleanExpiredCQ -c DefaultCluster": r"^success",
    "cleanUnusedTopic -c DefaultCluster": r"^success",
    "statsAll": r"^{topic} ",
    "deleteSubGroup -c DefaultCluster -g {group}": r"delete subscription group .*success",
    "deleteTopic -c DefaultCluster -t {topic}": r"delete topic \[{topic}\] from NameServer success",
}
"""What is typed, and a line that must come of it."""


async def leader_of(cluster: Cluster) -> str:
    async with PeerPool() as pool:
        return (await Probe(cluster, pool).wait_for_leader("broker-a")).node.address


@pytest.mark.parametrize("client", CLIENTS[:2], ids=lambda client: f"{client.name}")
def test_every_command_works(cluster: Cluster, client: Client) -> None:
    """One JVM runs them all, one after the other."""
    try:
        client.prepare(client)
    except Missing as reason:
        pytest.skip(f"{client.title} {client.version}: {reason}")
    home = client.home / "mqadmin"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
    leader = trio.run(leader_of, cluster)
    names = {
        "leader": leader,
        "topic": f"Admin_{client.name}",
        "group": f"Admin_{client.name}_group",
    }
    commands = {typed.format(**names): wanted.format(**names) for typed, wanted in COMMANDS.items()}

    done = subprocess.run(
        [*java(client, tools=True), "Admin"],
        input="".join(f"{typed}\n" for typed in commands),
        env={**os.environ, "NAMESRV_ADDR": cluster.layout.namesrv_addr},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    sections = (part.partition("\n") for part in done.stdout.split("@@ ")[1:])
    printed = {typed: text for typed, _, text in sections}
    wrong = {
        typed: printed.get(typed, "it did not run")[:400]
        for typed, wanted in commands.items()
        if not re.search(wanted, printed.get(typed, ""), re.MULTILINE)
    }
    assert not wrong, "\n\n".join(f"{typed}:\n{text}" for typed, text in wrong.items())
