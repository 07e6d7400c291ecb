"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): raw records of the log, with long polling.

Checks, codes and the meaning of `sys_flag` are the reference's (PullMessageProcessor). Stock
consumers name no size and ask for 32 messages; ours ask for up to `PULL_BYTES_MAX`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.buffers import Buffer
from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.headers.consume import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from dledger.remoting.names import TOOLS_GROUP
from mqbroker import limits
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.refusal import Refused, no_queue
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.filters import (
    MessageFilter,
    filter_of,
    parse_subscription,
    selection,
)
from mqbroker.requests.groups.counting import Counting
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.held_pulls import HeldPull, HeldPulls
from mqbroker.requests.needs import by_leader
from mqbroker.requests.permissions import check_broadcast, check_enabled, check_readable
from mqbroker.requests.reading.queue_reading import Found, read_queue
from mqbroker.requests.replies import EXPECTED
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.topics import check_group_name, check_reader

_NO_ARRIVAL: Final[MessageFilter] = frozenset()
"""No message wakes a pull that waits for its turn."""


@dataclass(slots=True)
class _Asked:
    """A pull, and how long it may wait."""

    request: Command
    connection: Connection
    header: headers.PullMessageHeader
    wanted: MessageFilter
    until_s: float
    life: int
    """The life of the topic when it was asked."""
    is_held_back: bool = False


@dataclass(eq=False, slots=True)
class PullHandler:
    """Answers pulls with the log's records, or holds them until there are some."""

    _core: Core
    _membership: Membership
    _commits: OffsetCommits
    _counting: Counting
    _held: HeldPulls

    @by_leader(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, rights=rights.CONSUME)
    def pull(self, request: Command, connection: Connection) -> Command | None:
        """Answer at once, or hold the pull until there is a message for it."""
        header = decode_header(headers.PullMessageHeader, request)
        wanted = self._check(header)
        self._core.definitions.ensure_group(header.consumer_group)
        if header.sys_flag & PULL_COMMIT_OFFSET:
            try:
                self._commit(header, connection)
            except Refused as refused:
                self._core.replies.log_refusal(request, connection, refused)
        key = _queue_of(header)
        self._membership.reads(header.consumer_group, connection.id)
        moved = self._counting.pulled(key, connection.id, header.queue_offset, header.life)
        hold_s = min(header.suspend_timeout_millis / 1000, limits.PULL_HOLD_S_MAX)
        if not header.sys_flag & PULL_SUSPEND:
            hold_s = 0.0
        life = self._core.machine.topics.life(header.topic).entry
        asked = _Asked(request, connection, header, wanted, self._core.clock_s() + hold_s, life)
        if moved is None and self._waits_its_turn(asked):
            return None
        found = self._find(header, wanted)
        if moved is not None:
            found = _sent_to(moved, found)
        if (
            found.code == ResponseCode.PULL_NOT_FOUND
            and hold_s > 0
            and self._hold(asked, asked.until_s, wanted)
        ):
            return None
        return self._answer(request, header, found)

    def _waits_its_turn(self, asked: _Asked) -> bool:
        """Whether a pull is held since its group was given as much as its rate allows for now.

        Raises Refused if it can't wait that long.
        """
        flow = self._core.flow
        held_back = flow.held_back(asked.header.consumer_group)
        if held_back is None:
            return False
        if not asked.is_held_back:
            self._core.rates.read_held_back(asked.header.consumer_group)
            asked.is_held_back = True
        turn_s = self._core.clock_s() + held_back.wait_s
        if turn_s <= asked.until_s and self._hold(asked, turn_s, _NO_ARRIVAL):
            return True
        raise held_back.refusal()

    def _commit(self, header: headers.PullMessageHeader, connection: Connection) -> None:
        """Commit the offset that comes with the pull, if it counts."""
        key = _queue_of(header)
        offset = header.commit_offset
        if offset < 0 or not self._counting.fence.counts(key, connection.id):
            return
        if self._counting.counts(key, offset, connection, is_consumer=True, life=header.life):
            self._commits.gather(key, offset)

    def _hold(self, asked: _Asked, until_s: float, wakes: MessageFilter) -> bool:
        """Keep a pull until `until_s`, or until a message comes that `wakes` it; False if too many
        are kept."""
        core, request, header = self._core, asked.request, asked.header
        # The body is not needed; as a view it would keep alive all bytes that arrived with it.
        request.body, request.held = b"", True

        def again(_: HeldPull) -> None:
            try:
                core.role.check_serving()
                self._permit(header)
                if self._waits_its_turn(asked):
                    return
                found = self._find(header, asked.wanted)
                if asked.life != core.machine.topics.life(header.topic).entry:
                    found = _sent_to(self._commits.resumes(_queue_of(header)), found)
                response = self._answer(request, header, found)
            except EXPECTED as error:
                response = core.replies.refusal(request, asked.connection, error)
            core.replies.send(request, asked.connection, response)

        return self._held.hold(
            HeldPull(
                connection_id=asked.connection.id,
                group=header.consumer_group,
                topic=header.topic,
                queue_id=header.queue_id,
                until_s=until_s,
                wanted=wakes,
                again=asked.connection.answer_by(request, again),
            )
        )

    def _check(self, header: headers.PullMessageHeader) -> MessageFilter:
        """Refuse what the reference refuses; returns the filter of the subscription."""
        self._permit(header)
        if header.sys_flag & PULL_SUBSCRIPTION:
            return parse_subscription(header.subscription, header.expression_type)
        return self._subscribed(header)

    def _permit(self, header: headers.PullMessageHeader) -> None:
        """Refuse a pull whose group, topic or queue is gone, or not to be read now."""
        core = self._core
        group = core.machine.groups.get(header.consumer_group)
        if group is None:
            check_group_name(header.consumer_group)
        else:
            check_enabled(group)
            if not group.consume_broadcast_enable:
                members = self._membership.consumers(header.consumer_group)
                check_broadcast(group, members.message_model if members is not None else "")
        check_reader(header.topic, header.consumer_group)
        topic = core.definitions.topic(header.topic)
        check_readable(topic, core.permission)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise no_queue(header.topic, header.queue_id, topic.read_queue_nums)

    def _subscribed(self, header: headers.PullMessageHeader) -> MessageFilter:
        """The filter from the group's heartbeats."""
        group = self._membership.consumers(header.consumer_group)
        subscription = group.subscriptions.get(header.topic) if group is not None else None
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the group {header.consumer_group!r} does not subscribe to {header.topic!r} "
                "here (as yet): send a heartbeat first",
            )
        wanted = filter_of(subscription)
        if subscription.sub_version < header.sub_version:
            # Stock clients raise the version at each rebalance, and their next heartbeat may come
            # 30 s later. Until then the consumer filters by itself, if it can.
            if wanted is not None and not isinstance(wanted, frozenset):
                raise Refused(
                    ResponseCode.SUBSCRIPTION_NOT_LATEST,
                    f"the group {header.consumer_group!r} has subscribed to {header.topic!r} anew: "
                    "send a heartbeat first",
                )
            return None
        return wanted

    def _find(self, header: headers.PullMessageHeader, wanted: MessageFilter) -> Found:
        wanted_bytes = header.max_msg_bytes or 0
        bytes_max = wanted_bytes if wanted_bytes > 0 else limits.PULL_BYTES_DEFAULT
        granted = self._core.flow.grant(header.consumer_group)
        began_s = self._core.clock_s()
        found = read_queue(
            self._core.machine.queues.get(header.topic, header.queue_id),
            header.queue_offset,
            messages_max=min(max(header.max_msg_nums, 1), granted.messages),
            bytes_max=min(bytes_max, granted.size_bytes),
            selection=selection(wanted, self._core.log.view),
            # Tools see what has expired, too, as long as it is kept.
            now_ms=0 if header.consumer_group == TOOLS_GROUP else self._core.assignments.now_ms(),
        )
        self._core.entries.times.read(self._core.clock_s() - began_s)
        if header.queue_offset > found.max_offset:
            # The position is beyond this queue, as after the topic was made again.
            found = found._replace(next_offset=self._commits.resumes(_queue_of(header)))
        return found

    def _answer(self, request: Command, header: headers.PullMessageHeader, found: Found) -> Command:
        queue = (header.consumer_group, header.topic, header.queue_id)
        size_bytes = sum(size for _, size in found.pieces)
        self._core.rates.got(queue, found.messages, size_bytes, found.next_offset)
        if found.messages:
            self._core.flow.given(header.consumer_group, found.messages, size_bytes)
        view = self._core.log.view
        body: tuple[Buffer, ...] = tuple(view(position, size) for position, size in found.pieces)
        if len(body) > limits.PULL_PIECES_MAX:
            body = (b"".join(body),)
        answer = headers.PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            expiring=found.expiring or None,
            life=self._life(header) if header.life is not None else None,
        )
        return request.reply(found.code, encode_header(answer), body, found.remark)

    def _life(self, header: headers.PullMessageHeader) -> int | None:
        """The topic's life, for who does not know it."""
        life = self._core.machine.topics.life(header.topic).entry
        return None if life == header.life else life


def _queue_of(header: headers.PullMessageHeader) -> QueueKey:
    return QueueKey(header.consumer_group, header.topic, header.queue_id)


def _sent_to(offset: int, found: Found) -> Found:
    """The answer to a pull whose position is to be another one."""
    code = ResponseCode.PULL_OFFSET_MOVED
    return Found(code, "OFFSET_RESET", offset, found.min_offset, found.max_offset)
