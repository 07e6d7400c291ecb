"""Command lines of RocketMQ's own `mqadmin`, unmodified, and the words that each must print.

All of a release run in one JVM; a few commands, such as sendMessage, can run only once in one. The
tool's exit status says nothing (it is 0 after an error, too), so its words are judged: all of
`shows` must be there, and no exception. Where 4.9 and 5.x want other options or say it in other
words, a line is for one of them. `{...}` is filled in: names, ids, and who leads and who follows in
broker-a at the moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Self

from clients import Client, java

COMMAND_TIMEOUT_S = 60
END = "@@\n"
"""The line that `Admin`, which runs commands line by line, prints after each."""


@dataclass(frozen=True)
class Line:
    """A command line; `major` is its release line, 0 for both."""

    line: str
    shows: tuple[str, ...]
    major: int = 0
    refused: bool = False
    """The right answer is an error."""


LINES = (
    Line("clusterList", ("DefaultCluster", "broker-a", "V4_9_8")),
    Line("clusterList -m", ("#InTotalToday", "broker-b")),
    Line("updateTopic -c DefaultCluster -t {t} -r 2 -w 2", ("create topic to", "success")),
    Line("updateTopic -b {leader} -t {t}b -r 1 -w 1", ("create topic to {leader} success",)),
    Line("updateTopic -c DefaultCluster -t {t}o -r 2 -w 2 -o true", ("broker-a:2", "broker-b:2")),
    Line("topicRoute -t {t}o", ('"orderTopicConf":"broker-', ":2;broker-", '"perm":6')),
    Line("topicList", ("{t}", "{t}b", "TBW102")),
    Line("topicList -c", ("{t}",)),
    Line("topicClusterList -t {t}", ("DefaultCluster",)),
    Line("updateSubGroup -c DefaultCluster -g {g}", ("create subscription group to", "success")),
    Line("updateSubGroup -b {leader} -g {g}b -r 3", ("retryMaxTimes=3",)),
    Line(
        "setConsumeMode -c DefaultCluster -t {t} -g {g} -m POP -q 2",
        ("set consume mode to", "success", "popShareQueueNum[2]"),
        major=5,
    ),
    Line("sendMessage -t {t} -p hello -k key1 -c tagA -b broker-a -i 0", ("SEND_OK", "broker-a")),
    Line("topicStatus -t {t}", ("broker-a", "broker-b", "#Max Offset")),
    Line("consumeMessage -t {t}", ("Consume ok", "MSGID: ")),
    Line("printMsg -t {t}", ("minOffset=0", "MSGID: ")),
    Line("queryMsgByOffset -t {t} -b broker-a -i 0 -o 0", ("OffsetID:", "[key1]", "[tagA]")),
    Line("queryMsgByKey -t {t} -k key1", ("{id}",)),
    Line("queryMsgById -i {place}", ("CommitLog Offset:", "[key1]"), major=4),
    Line("queryMsgById -t {t} -i {place}", ("CommitLog Offset:", "[key1]"), major=5),
    Line("queryMsgByUniqueKey -t {t} -i {id}", ("CommitLog Offset:", "[key1]")),
    Line("resetOffsetByTime -g {g} -t {t} -s -1", ("consumer offset by specified", "broker-a")),
    Line("consumerProgress", ("#Group", "{live}")),
    Line("consumerProgress -g {live}", ("Orders", "Diff Total: 0")),
    Line("consumerConnection -g {live}", ("CLUSTERING", "Orders", "127.0.0.1@")),
    Line("producerConnection -g {live}P -t Orders", ("127.0.0.1@", "PYTHON")),
    Line("consumerStatus -g {live}", ("127.0.0.1@", "V4_9_8")),
    Line(
        "resetOffsetByTime -g {live} -t Orders -s now", ("consumer offset by specified", "broker-b")
    ),
    Line("brokerStatus -b {leader}", ("putTps", "commitLogMaxOffset", "SYNC_MASTER")),
    Line("brokerStatus -c DefaultCluster", ("{leader}", "earliestMessageTimeStamp")),
    Line("statsAll", ("Orders", "{live}")),
    Line("statsAll -a -t {t}", ("{t}",)),
    Line("getBrokerConfig -b {leader}", ("maxMessageSize", "4194304")),
    Line(
        "updateBrokerConfig -b {leader} -k maxMessageSize -v 4194304",
        ("update broker config success, {leader}",),
    ),
    Line("updateBrokerConfig -c DefaultCluster -k maxMessageSize -v 4194304", ("success",)),
    Line(
        "updateBrokerConfig -b {leader} -k listenPort -v 1",
        ("CODE: 16", "listenPort"),
        refused=True,
    ),
    Line("getNamesrvConfig", ("listenPort", "kvConfigPath")),
    Line(
        "updateNamesrvConfig -k returnOrderTopicConfigToBroker -v true",
        ("update name server config success",),
    ),
    Line("updateNamesrvConfig -k listenPort -v 1", ("CODE: 16", "listenPort"), refused=True),
    Line("updateKvConfig -s {g} -k k -v v", ("create or update kv config to namespace success",)),
    Line("deleteKvConfig -s {g} -k k", ("delete kv config from namespace success",)),
    Line("wipeWritePerm -b broker-b", ("wipe write perm of broker[broker-b]", "OK")),
    Line("addWritePerm -b broker-b", ("add write perm of broker[broker-b]", "OK")),
    # A follower's changes reach the leader.
    Line("updateTopic -b {follower} -t {t}f -r 1 -w 1", ("create topic to {follower} success",)),
    Line("updateSubGroup -b {follower} -g {g}f -r 3", ("retryMaxTimes=3",)),
    Line("deleteSubGroup -b {follower} -g {g}f", ("delete subscription group [{g}f]",)),
    Line("updateTopicList -b {leader} -f topics.json", ("success",), major=5),
    Line("updateSubGroupList -b {leader} -f groups.json", ("success",), major=5),
    Line("brokerConsumeStats -b {leader}", ("Orders", "{live}", "Diff Total: ")),
    Line("producer -b {leader}", ("producer group ({live}P)", "127.0.0.1@")),
    Line("queryCq -t {t} -q 0 -i 0 -c 1 -b {leader}", ("physicOffset", "max: ")),
    Line("listUser -b {leader}", (), major=5),
    Line("haStatus -b {leader}", ("CODE: 3", "mqadmin raftStatus"), major=5, refused=True),
    Line("cleanExpiredCQ -c DefaultCluster", ("success",)),
    Line("cleanExpiredCQ -b {leader}", ("success",)),
    Line("cleanUnusedTopic -c DefaultCluster", ("success",)),
    Line("cleanUnusedTopic -b {leader}", ("success",)),
    Line("deleteSubGroup -c DefaultCluster -g {g}", ("delete subscription group [{g}]",)),
    Line("deleteSubGroup -b {leader} -g {g}b -r true", ("delete subscription group [{g}b]",)),
    Line("deleteTopic -c DefaultCluster -t {t}", ("delete topic [{t}] from NameServer success",)),
    Line("deleteTopic -c DefaultCluster -t {t}b", ("from NameServer success",)),
    Line("deleteTopic -c DefaultCluster -t {t}o", ("from NameServer success",)),
    Line("deleteTopic -c DefaultCluster -t {t}f", ("from NameServer success",)),
)


@dataclass
class Stock:
    """A release of the tool, in one JVM, with the values for its lines.

    The ids are those of the first message that it sent, taken from its output.
    """

    client: Client
    namesrv_addr: str
    live: str
    names: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        name, home = self.client.name, self.client.home / "mqadmin"
        self.names |= {"t": f"{name}Tool", "g": f"{name}Group", "live": self.live}
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        topics, groups = [{"topicName": f"{name}ToolL"}], [{"groupName": f"{name}GroupL"}]
        (home / "topics.json").write_text(json.dumps(topics))
        (home / "groups.json").write_text(json.dumps(groups))
        self._process = subprocess.Popen(
            [*java(self.client, tools=True), "Admin"],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "NAMESRV_ADDR": self.namesrv_addr},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def fill(self, text: str) -> str:
        """A line, or words, with the names in place."""
        for name, value in self.names.items():
            text = text.replace("{" + name + "}", value)
        return text

    def run(self, line: Line) -> str:
        """The output of a command, on both of its streams."""
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        to.write(self.fill(line.line) + "\n")
        to.flush()
        deadline = threading.Timer(COMMAND_TIMEOUT_S, self._process.kill)
        deadline.start()
        try:
            printed = "".join(takewhile(lambda text: text != END, answers))
        finally:
            deadline.cancel()
        self._learn(printed)
        return printed

    def _learn(self, printed: str) -> None:
        for text in printed.splitlines():
            words = text.split()
            if "SEND_OK" in words:
                self.names.setdefault("id", words[-1])
            if words[:1] == ["OffsetID:"]:
                self.names.setdefault("place", words[-1])


def judge(stock: Stock, line: Line, printed: str) -> None:
    """Judge what a command printed: AssertionError unless it is as its line says."""
    for words in line.shows:
        assert stock.fill(words) in printed, f"{words!r} is missing in:\n{printed}"
    assert line.refused or "Exception" not in printed, printed
