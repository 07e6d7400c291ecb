"""PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055): they hand nothing out.

A peek shows what a pop would get. A notification waits like a pop, until there is something to pop;
its answer says so, and who comes first gets it.
"""

from __future__ import annotations

from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.rights import GET, group, topic
from mqbroker import limits
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_leader
from mqbroker.requests.popping.asking import check_waited, look_of, queues_of, want_of
from mqbroker.requests.popping.held_pops import HeldPop
from mqbroker.requests.popping.planning import Want
from mqbroker.requests.popping.pop import records_of
from mqbroker.requests.popping.waiting import Popping
from mqbroker.requests.replies import EXPECTED


class PopQuestionHandler:
    """Answers questions about the messages that a pop would get."""

    def __init__(self, core: Core, popping: Popping) -> None:
        self._core = core
        self._popping = popping

    @by_leader(RequestCode.PEEK_MESSAGE, rights=rights.CONSUME)
    def peek(self, request: Command, _: Connection) -> Command:
        """The messages that a pop would get now."""
        header = decode_header(headers.PeekMessageHeader, request)
        as_pop = headers.PopMessageHeader(
            consumer_group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            max_msg_nums=header.max_msg_nums,
            invisible_time=1,
            poll_time=0,
            born_time=0,
            init_mode=0,
        )
        seen = self._popping.pops.peek(want_of(self._core, request, as_pop))
        answer = headers.PopMessageResponseHeader(
            pop_time=seen.pop_time_ms, invisible_time=0, revive_qid=0, rest_num=seen.rest
        )
        code = ResponseCode.SUCCESS if seen.messages else ResponseCode.PULL_NOT_FOUND
        return request.reply(code, encode_header(answer), records_of(self._core, seen.messages))

    @by_leader(RequestCode.POLLING_INFO, rights=group(GET, at="consumerGroup") & topic(GET))
    def polling_info(self, request: Command, _: Connection) -> Command:
        """How many pops wait with this queue in their request."""
        header = decode_header(headers.PollingInfoHeader, request)
        queues_of(self._core, header.consumer_group, header.topic, header.queue_id)
        key = (header.consumer_group, header.topic)
        answer = headers.PollingInfoResponseHeader(self._popping.held.waiting(key, header.queue_id))
        return request.reply(ext=encode_header(answer))

    @by_leader(RequestCode.NOTIFICATION, rights=rights.CONSUME)
    def notify(self, request: Command, connection: Connection) -> Command | None:
        """Whether there is something to pop; held until there is."""
        core = self._core
        header = decode_header(headers.NotificationHeader, request)
        want = look_of(core, header)
        request.body = b""
        hold_s = min(max(header.poll_time, 0) / 1000, limits.POP_HOLD_S_MAX)
        has_msg = self._has_message(want)
        if hold_s <= 0 or has_msg:
            return _answer(request, has_msg=has_msg)
        finished = False

        def again(is_last: bool) -> None:
            nonlocal finished
            finished = True
            try:
                core.role.check_serving()
                check_waited(core, header.consumer_group, header.topic)
                has_msg = self._has_message(want)
                finished = has_msg or is_last
                if finished:
                    core.replies.send(request, connection, _answer(request, has_msg=has_msg))
            except EXPECTED as error:
                core.replies.refuse(request, connection, error)

        guarded = connection.answer_by(request, again)

        def run(is_last: bool) -> bool:
            guarded(is_last)
            return finished or connection.closed

        held = HeldPop(
            connection_id=connection.id,
            key=(header.consumer_group, header.topic),
            queue_id=header.queue_id,
            until_s=core.clock_s() + hold_s,
            is_open=False,
            again=run,
        )
        if self._popping.hold(held):
            request.held = True
            return None
        return _answer(request, has_msg=False, full=True)

    def _has_message(self, want: Want) -> bool:
        """Whether there is something, or may be: then a pop looks further than this."""
        seen = self._popping.pops.peek(want)
        return bool(seen.messages) or seen.is_cut_short


def _answer(request: Command, *, has_msg: bool, full: bool = False) -> Command:
    header = headers.NotificationResponseHeader(has_msg=has_msg, polling_full=full)
    return request.reply(ext=encode_header(header))
