"""The harness's own view of a cluster during a run: leaders, votes, ends of queues, offsets.

It asks every node, whether it leads or not, and notes each answer with the moment before the
question: a judge then knows that the answer was true at some moment between the two. A node that
leads no more and does not know it is asked like any other; what it may answer is what the audit is
about. Votes are read from the nodes' files, since no answer tells them.

At the end of a run whose consumers write outputs it compares these with their inputs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from dledger.errors import BadInput, DledgerError
from dledger.log.hard_state import read_slots
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    Header,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    decode_header,
    encode_header,
)
from mqchaos.cluster.access import Access
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import NodeState
from mqchaos.history.events import GroupOffset, HistoryWriter, Lead, QueueEnd, Vote
from mqchaos.limits import ASK_INTERVAL_S, ASK_TIMEOUT_S, LAG_EVERY_S, READ_BACK_QUIET_S
from mqchaos.run.load.workload import output_key, outputs_of
from mqclient import Admin, Consumer, ReceivedMessage
from mqclient.connection.peers import PeerPool


@dataclass(slots=True)
class Observer:
    """Notes what it sees in a history, each leader and each vote once."""

    cluster: Cluster
    pool: PeerPool
    history: HistoryWriter
    #: "broker/queue" -> the highest end that was answered.
    ends: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    _leads: set[tuple[str, str, int]] = field(default_factory=set)
    _votes: set[tuple[str, str, int, str | None]] = field(default_factory=set)

    def note_leaders(self, states: Sequence[NodeState], began: int) -> None:
        """Note the leaders among the answers of nodes that were asked at `began`."""
        now = time.monotonic_ns()
        for state in states:
            if state.info is None or not state.leads:
                continue
            named = (state.node.broker, state.node.node, state.info.term)
            if named not in self._leads:
                self._leads.add(named)
                self.history.write(Lead(now, *named, began, state.info.end_position))

    def note_votes(self) -> None:
        """Note the terms and votes in the nodes' files at this moment."""
        for broker in self.cluster.layout.brokers:
            for node in self.cluster.layout.group(broker):
                raw = b""
                with suppress(OSError):  # it may be on its way to being made, or broken on purpose
                    raw = (self.cluster.store(node) / "log" / "term").read_bytes()
                for _, state in read_slots(raw):
                    named = (broker, node.node, state.term, state.vote)
                    if named not in self._votes:
                        self._votes.add(named)
                        self.history.write(Vote(time.monotonic_ns(), *named))

    async def keep_asking(self, topic: str, queues: int, group: str) -> None:
        """Ask all nodes for the ends of the topic's queues and the group's offsets, for ever."""
        async with trio.open_nursery() as nursery:
            for broker in self.cluster.layout.brokers:
                for node in self.cluster.layout.group(broker):
                    nursery.start_soon(self._keep_asking, node, topic, queues, group)

    async def _keep_asking(self, node: NodeLayout, topic: str, queues: int, group: str) -> None:
        while True:
            for queue_id in range(queues):
                place = (node.broker, node.node)
                ends = GetMaxOffsetHeader(topic=topic, queue_id=queue_id)
                began = time.monotonic_ns()
                answer = await self._ask(node, RequestCode.GET_MAX_OFFSET, ends)
                if answer is None:
                    break  # it does not lead, or does not answer: one question tells
                end = decode_header(GetMaxOffsetResponseHeader, answer).offset
                queue = f"{node.broker}/{queue_id}"
                self.ends[queue] = max(end, self.ends.get(queue, 0))
                now = time.monotonic_ns()
                self.history.write(QueueEnd(now, began, *place, topic, queue_id, end))
                query = QueryConsumerOffsetHeader(
                    consumer_group=group,
                    topic=topic,
                    queue_id=queue_id,
                    set_zero_if_not_found=False,
                )
                began = time.monotonic_ns()
                answer = await self._ask(node, RequestCode.QUERY_CONSUMER_OFFSET, query)
                if answer is not None:
                    at = decode_header(QueryConsumerOffsetResponseHeader, answer).offset
                    now = time.monotonic_ns()
                    self.passed[queue] = max(at, self.passed.get(queue, 0))
                    self.history.write(GroupOffset(now, began, *place, group, topic, queue_id, at))
            await trio.sleep(ASK_INTERVAL_S)

    async def _ask(self, node: NodeLayout, code: RequestCode, header: Header) -> Command | None:
        """The node's answer, if it gives one that is no refusal."""
        request = Command(code, encode_header(header))
        try:
            answer = await self.pool.request(node.address, request, ASK_TIMEOUT_S)
        except (DledgerError, BadInput):
            return None
        return answer if answer.code == ResponseCode.SUCCESS else None


async def nothing_left(admin: Admin, topic: str, group: str) -> None:
    """Wait until brokers say that a group has passed all of a topic."""
    while True:
        with suppress(DledgerError, BadInput):
            if (await admin.groups.progress(group, topic)).lag == 0:
                return
        await trio.sleep(LAG_EVERY_S)


async def without_their_output(
    admin: Admin, namesrv_addr: str, access: Access, topic: str, group: str
) -> list[str]:
    """Faults of the outputs of messages that a group has passed: each must have exactly one."""
    rows = (await admin.groups.progress(group, topic)).queues
    passed = {(row.broker_name, row.queue_id): row.consumer_offset for row in rows}
    wanted = Counter[str]()
    for message in await _everything(namesrv_addr, access, topic):
        if message.queue_offset < passed.get((message.broker_name, message.queue_id), 0):
            wanted[output_key(message.message_id)] += 1
    outputs = await _everything(namesrv_addr, access, outputs_of(topic))
    found = Counter(each.message_id for each in outputs)
    lacking, beyond = wanted - found, found - wanted
    return [
        f"{count} outputs {what}: {', '.join(sorted(outputs)[:3])}"
        for what, outputs in (("are missing", lacking), ("are there too often", beyond))
        if (count := outputs.total())
    ]


async def _everything(namesrv_addr: str, access: Access, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic."""
    found: list[ReceivedMessage] = []
    consumer = Consumer(
        namesrv_addr,
        None,
        {topic: "*"},
        assign="all",
        offsets=None,
        auto_commit=False,
        **access,
    )
    async with consumer:
        while messages := await consumer.poll(timeout_s=READ_BACK_QUIET_S):
            found += messages
    return found
