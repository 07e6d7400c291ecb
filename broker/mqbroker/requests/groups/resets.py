"""INVOKE_BROKER_TO_RESET_OFFSET (222): a group goes on from other offsets.

The new offsets are committed to the log first, so they hold for a group that is offline too, and
over a failover. Then the connected members are told (220): stock consumers drop the messages that
they hold of these queues and read their offsets anew. A consumer that is not told learns it at its
next pull (see `mqbroker.requests.groups.readers`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from dledger.net import Connection
from dledger.net.turns import encode_in_turns, in_turns, result_in_turns
from dledger.remoting import bodies, headers
from dledger.remoting.bodies import encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.trust.rights import UPDATE, group, topic
from mqbroker.leader.offset_commits import check_room
from mqbroker.refusal import Refused, no_queue
from mqbroker.requests.core import Core
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.groups.readers import Readers
from mqbroker.requests.needs import by_leader_to_admin
from mqbroker.state.control import CommitOffsets
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.groups.places import place
from mqbroker.state.topics import check_group_name

_END = -1


@dataclass(eq=False, slots=True)
class ResetHandler:
    """Answers INVOKE_BROKER_TO_RESET_OFFSET, and has waiting pops look again: `on_reset(group,
    topic)`."""

    _core: Core
    _clients: ClientHandler
    _readers: Readers
    _on_reset: Callable[[str, str], None]

    @by_leader_to_admin(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, rights=group(UPDATE) & topic(UPDATE)
    )
    async def reset(self, request: Command, _: Connection) -> Command:
        """Commit the new offsets, tell the members, answer with all of them."""
        header = decode_header(headers.InvokeBrokerToResetOffsetHeader, request)
        check_group_name(header.group)
        targets = await result_in_turns(self._find(header))
        self._core.role.check_serving()
        self._core.definitions.ensure_group(header.group)
        rows = [(header.group, header.topic, queue_id, at) for queue_id, at in targets.items()]
        offsets = self._core.machine.offsets
        check_room(offsets.shares, header.group, sum(offsets.get(*row[:3]) is None for row in rows))
        await self._core.definitions.changed(CommitOffsets(rows))
        for queue_id, at in targets.items():
            self._readers.reset(QueueKey(header.group, header.topic, queue_id), at)
        broker_name = self._core.config.broker_name
        table = {MessageQueue(header.topic, broker_name, n): at for n, at in targets.items()}
        self._on_reset(header.group, header.topic)
        loose = await encode_in_turns(bodies.ResetOffsetBody(table), bodies.Dialect.LOOSE)
        await in_turns(self._tell(header, table, loose))
        if request.encoding is HeaderEncoding.MSGPACK:
            return request.reply(body=await encode_in_turns(bodies.ResetOffsetBody(table)))
        return request.reply(body=loose)

    def _find(
        self, header: headers.InvokeBrokerToResetOffsetHeader
    ) -> Generator[None, None, dict[int, int]]:
        """Queue id -> the offset to go on from, a queue at each step: a file may have to be read
        for it. Refused if the topic is made again meanwhile."""
        topics = self._core.machine.topics
        queues = self._core.definitions.topic(header.topic).read_queue_nums
        if header.queue_id is not None and header.queue_id >= 0:
            if header.queue_id >= queues:
                raise no_queue(header.topic, header.queue_id, queues)
            return {header.queue_id: self._target(header, header.queue_id)}
        targets = dict[int, int]()
        life = topics.life(header.topic)
        for queue_id in range(queues):
            targets[queue_id] = self._target(header, queue_id)
            yield
            if topics.get(header.topic) is None or topics.life(header.topic) != life:
                raise Refused(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"the topic {header.topic!r} was deleted while the group was reset: nothing "
                    "has changed",
                )
        return targets

    def _target(self, header: headers.InvokeBrokerToResetOffsetHeader, queue_id: int) -> int:
        machine = self._core.machine
        queue = machine.queues.get(header.topic, queue_id)
        begin, end = machine.queues.span(header.topic, queue_id)
        if header.offset is not None and header.offset >= 0:
            return min(max(header.offset, begin), end)
        target = end
        if header.timestamp != _END and queue is not None:
            target = queue.first_at(header.timestamp)
        present = place(machine, header.group, header.topic, queue_id)
        # Without force a group is only moved back.
        return target if header.is_force or present is None else min(target, present)

    def _tell(
        self,
        header: headers.InvokeBrokerToResetOffsetHeader,
        table: dict[MessageQueue, int],
        body: bytes,
    ) -> Iterator[None]:
        """Tell the members, one at each step; `body` is what most of them read."""
        notice = headers.ResetConsumerClientOffsetHeader(
            topic=header.topic,
            group=header.group,
            timestamp=header.timestamp,
            is_force=header.is_force,
        )
        rows = [
            bodies.QueueOffset(queue.topic, queue.broker_name, queue.queue_id, at)
            for queue, at in table.items()
        ]
        as_list = encode_body(bodies.ResetOffsetListBody(rows))
        for client, connection in self._clients.members(header.group):
            content = as_list if client.language == "CPP" else body
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            connection.send_oneway_request(Command(code, encode_header(notice), content))
            yield
