"""Questions about queues and single messages, and commits of offsets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.rights import GET, SUB, UPDATE, group, topic
from mqbroker import limits
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.refusal import Refused
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.counting import Counting
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.held_pulls import HeldPull, HeldPulls, Takes
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_confirmed, by_leader
from mqbroker.state.derived.consume_queue import ConsumeQueue
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.topics import check_group_name


@dataclass(eq=False, slots=True)
class LookupHandler:
    """Answers from applied state; only a commit of an offset goes through the log."""

    _core: Core
    _membership: Membership
    _commits: OffsetCommits
    _counting: Counting
    _held: HeldPulls

    @by_confirmed(RequestCode.GET_MAX_OFFSET, rights=topic(GET, SUB))
    def max_offset(self, request: Command, _: Connection) -> Command:
        """The end of the queue. What is acknowledged is applied, so no acknowledged offset is above
        it."""
        header = decode_header(headers.GetMaxOffsetHeader, request)
        answer = headers.GetMaxOffsetResponseHeader(self._span(header.topic, header.queue_id)[1])
        return request.reply(ext=encode_header(answer))

    @by_confirmed(RequestCode.GET_MIN_OFFSET, rights=topic(GET, SUB))
    def min_offset(self, request: Command, _: Connection) -> Command:
        """The first offset of the queue: earlier messages have expired."""
        header = decode_header(headers.GetMinOffsetHeader, request)
        answer = headers.GetMinOffsetResponseHeader(self._span(header.topic, header.queue_id)[0])
        return request.reply(ext=encode_header(answer))

    @by_confirmed(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, rights=topic(GET, SUB))
    def search_offset(self, request: Command, _: Connection) -> Command:
        """The first offset stored at or after a time; with UPPER the last one at or before it."""
        header = decode_header(headers.SearchOffsetByTimestampHeader, request)
        queue = self._queue(header.topic, header.queue_id)
        offset = 0
        if queue is not None and (header.boundary_type or "LOWER").upper() == "UPPER":
            offset = max(queue.first_at(header.timestamp + 1) - 1, queue.begin)
        elif queue is not None:
            offset = queue.first_at(header.timestamp)
        return request.reply(
            ext=encode_header(headers.SearchOffsetByTimestampResponseHeader(offset))
        )

    @by_confirmed(RequestCode.GET_EARLIEST_MSG_STORETIME, rights=topic(GET, SUB))
    def earliest_store_time(self, request: Command, _: Connection) -> Command:
        """When the first message was stored; -1 for an empty queue, as in the reference."""
        header = decode_header(headers.GetEarliestMsgStoretimeHeader, request)
        queue = self._queue(header.topic, header.queue_id)
        timestamp_ms = -1
        if queue is not None and queue.begin < queue.end:
            timestamp_ms = queue.stored_ms(queue.begin)
        answer = headers.GetEarliestMsgStoretimeResponseHeader(timestamp_ms)
        return request.reply(ext=encode_header(answer))

    @by_leader(RequestCode.VIEW_MESSAGE_BY_ID, rights=rights.VIEWED)
    def view_message(self, request: Command, _: Connection) -> Command:
        """A record by its position in the log."""
        header = decode_header(headers.ViewMessageByIdHeader, request)
        record = self._core.asked_record(header.offset)
        return request.reply(body=self._core.log.view(header.offset, record.size))

    @by_confirmed(
        RequestCode.QUERY_CONSUMER_OFFSET,
        rights=group(SUB, GET, at="consumerGroup") & topic(SUB, GET),
    )
    def consumer_offset(self, request: Command, connection: Connection) -> Later[None]:
        """The place of a group in a queue, once commits of it that came before are applied.

        A queue that came into being after the group began is read from its first message, whatever
        its members say: this is asked before they act on that. A group that has no place in a queue
        starts at 0 while the queue's first message is still there, as with the reference on young
        topics; with `setZeroIfNotFound` off the client decides by itself.

        A member that takes a queue over may wait until another one has given it up, and is answered
        after that one's commit. Whatever else ends its waiting, this broker may have ceased to lead
        meanwhile: then the answer is that the queue is held, and the member asks again.
        """
        header = decode_header(headers.QueryConsumerOffsetHeader, request)
        self._queue(header.topic, header.queue_id)
        key = QueueKey(header.consumer_group, header.topic, header.queue_id)
        may_take = True

        def again(tell: Tell[None], question: HeldPull) -> None:
            nonlocal may_take
            may_take = question.takes is not None and self._counting.is_free(key)
            self._begin_again(header, tell)

        def begin(tell: Tell[None]) -> None:
            then = connection.answer_by(request, partial(again, tell))
            if self._commits.await_pending(key, tell):
                return
            question = self._question(header, connection, then)
            if question is None or not self._held.hold(question):
                tell(None)
                return
            request.held = True

        def answer(_: None) -> Command:
            return self._stored_offset(request, header, connection, may_take=may_take)

        return Later(begin, answer)

    def _begin_again(self, header: headers.QueryConsumerOffsetHeader, tell: Tell[None]) -> None:
        """Once it has waited: what was right when it was asked may be no more."""
        try:
            self._core.role.check_serving()
            self._queue(header.topic, header.queue_id)
            key = QueueKey(header.consumer_group, header.topic, header.queue_id)
            if not self._commits.await_pending(key, tell):
                tell(None)
        except Refused as refused:
            tell(refused)

    def _question(
        self,
        header: headers.QueryConsumerOffsetHeader,
        connection: Connection,
        again: Callable[[HeldPull], None],
    ) -> HeldPull | None:
        """The question of a member that takes a queue over, to be held while another one has it;
        None if it need not wait."""
        key = QueueKey(header.consumer_group, header.topic, header.queue_id)
        waits_s = min((header.waits_ms or 0) / 1000, limits.PULL_HOLD_S_MAX)
        if not header.takes or waits_s <= 0:
            return None
        if not self._counting.is_anothers(key, connection.id, self._membership):
            return None
        until_s = self._core.clock_s() + waits_s
        return HeldPull(connection.id, *key, until_s, frozenset(), again, Takes.PLACE)

    def _stored_offset(
        self,
        request: Command,
        header: headers.QueryConsumerOffsetHeader,
        connection: Connection,
        *,
        may_take: bool,
    ) -> Command:
        machine = self._core.machine
        key = QueueKey(header.consumer_group, header.topic, header.queue_id)
        offset = self._commits.place(key)
        life = machine.topics.life(header.topic).entry
        held = None
        if header.takes is False:
            self._held.withdraw(connection.id, *key)
            self._counting.give_up(key, connection.id)
        elif header.takes:
            taken = may_take and not self._counting.take(key, connection.id, self._membership)
            held = None if taken else True
        if offset is None:
            if (
                machine.queues.span(header.topic, header.queue_id)[0]
                or header.set_zero_if_not_found is False
            ):
                born_ms = machine.topics.birth(header.topic, header.queue_id).at_ms
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"the group {header.consumer_group!r} has no offset for queue "
                    f"{header.queue_id} of {header.topic!r}",
                    ext={"life": life, "bornMs": born_ms} | ({"held": True} if held else {}),
                )
            offset = 0
        elif (
            machine.offsets.get(*key) is None
            and self._membership.is_consumer(key.group, connection.id)
            and self._membership.has_pullers(key.group)
        ):
            # From now on it has this offset, and tools see how far behind it is. Pops note it by
            # themselves: behind their first one it would set the group back.
            with suppress(Refused):  # at a bound the answer has it all the same
                self._commits.gather(key, offset)
        begun = machine.groups.beginning(key.group)
        begun_ms = begun.at_ms if begun is not None else None
        answer = headers.QueryConsumerOffsetResponseHeader(offset, life, begun_ms, held)
        return request.reply(ext=encode_header(answer))

    @by_leader(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        rights=group(SUB, UPDATE, at="consumerGroup") & topic(SUB, UPDATE),
    )
    def commit_offset(self, request: Command, connection: Connection) -> Command | Later[None]:
        """Commit a group's offset; answered once that is in the log and applied.

        What can't be of the queue is refused: an offset beyond its end, or of an earlier life of
        its topic. A commit makes its group, as a pull does.

        A commit that does not count (see `mqbroker.requests.groups.readers`, `...fencing`) is
        answered like any other: the group is further already, or was reset, or the queue is
        another client's. With a token of our clients' locks it is refused instead.
        """
        header = decode_header(headers.UpdateConsumerOffsetHeader, request)
        check_group_name(header.consumer_group)
        self._core.check_queue(header.topic, header.queue_id)
        self._core.definitions.ensure_group(header.consumer_group)
        key = QueueKey(header.consumer_group, header.topic, header.queue_id)

        def done() -> Command:
            if not header.gives_up:
                return request.reply()
            self._counting.give_up(key, connection.id)
            return request.reply(ext={"givenUp": True})

        if header.lock_token is not None:
            self._counting.fence.check(key, header.lock_token)
        elif not self._counting.fence.counts(key, connection.id):
            return done()
        # Stock consumers commit one-way, tools wait for the answer. Ours wait, too, and say more.
        is_consumer = (
            request.is_oneway
            or header.sought_back is not None
            or self._membership.is_consumer(key.group, connection.id)
        )
        if not self._counting.counts(
            key,
            header.commit_offset,
            connection,
            is_consumer=is_consumer,
            sought_back=header.sought_back,
            life=header.life,
        ):
            return done()
        if request.is_oneway:
            self._commits.gather(key, header.commit_offset)
            return done()

        return Later(partial(self._commits.commit, key, header.commit_offset), lambda _: done())

    def _span(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first and the next offset of a queue. Refused if it does not exist."""
        self._queue(topic, queue_id)
        return self._core.machine.queues.span(topic, queue_id)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None while it has no message. Refused if the topic or queue does not exist."""
        self._core.check_queue(topic, queue_id)
        return self._core.machine.queues.get(topic, queue_id)
