"""POP_MESSAGE (200050): messages for a time, from whatever queue has some.

The answer has no info strings (`startOffsetInfo` and so on): clients then make the handles of the
messages themselves, of the answer's pop time and each message's place. A message that comes again
comes from its own topic, with the count of its deliveries in the record: there are no retry topics
of POP. How long a pop may wait is measured from its arrival, whatever the client's clock says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from msgspec.structs import replace

from dledger.buffers import Buffer
from dledger.errors import AppendError
from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.receipts import ORDERED_QUEUE, write_bits
from dledger.remoting.record import with_reconsume_times
from mqbroker import limits
from mqbroker.leader.definitions import ignored
from mqbroker.refusal import Refused
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.needs import by_leader
from mqbroker.requests.popping.asking import check_waited, is_ours, want_of
from mqbroker.requests.popping.held_pops import HeldPop
from mqbroker.requests.popping.planning import Want
from mqbroker.requests.popping.pops import Got, Handed
from mqbroker.requests.popping.settling import Change, Row
from mqbroker.requests.popping.waiting import Popping
from mqbroker.requests.replies import EXPECTED, Expected


class PopHandler:
    """Answers POP_MESSAGE, or holds it until there are messages."""

    def __init__(self, core: Core, popping: Popping, membership: Membership) -> None:
        self._core = core
        self._popping = popping
        self._membership = membership

    @by_leader(RequestCode.POP_MESSAGE, rights=rights.CONSUME)
    def pop(self, request: Command, connection: Connection) -> Command | None:
        """Answered when what is handed out is in the log, or when the wait is over."""
        header = decode_header(headers.PopMessageHeader, request)
        want = want_of(self._core, request, header)
        self._membership.reads(header.consumer_group, connection.id)
        request.body = b""  # as a view it would keep alive all bytes that arrived with it
        hold_s = min(max(header.poll_time, 0) / 1000, limits.POP_HOLD_S_MAX)
        until_s = self._core.clock_s() + hold_s
        _Asked(self._core, self._popping, request, connection, want, until_s).start()
        return None


@dataclass(eq=False, slots=True)
class _Asked:
    """A POP from its arrival to its answer."""

    _core: Core
    _popping: Popping
    _request: Command
    _connection: Connection
    _want: Want
    _until_s: float
    _finished: bool = False
    _is_held_back: bool = False

    def start(self) -> None:
        """Hand something out, or wait. Raises Refused, AppendError."""
        if self._append():
            return
        held_back = self._core.flow.held_back(self._want.group)
        if held_back is not None and self._core.clock_s() + held_back.wait_s > self._until_s:
            raise held_back.refusal()
        if self._until_s <= self._core.clock_s():
            self._nothing(ResponseCode.POLLING_TIMEOUT, "no message for now")
            return
        again = self._connection.answer_by(self._request, self._again)

        def run(is_last: bool) -> bool:
            self._finished = False
            again(is_last)
            return self._finished or self._connection.closed

        want = self._want
        held = HeldPop(
            connection_id=self._connection.id,
            key=(want.group, want.topic),
            queue_id=want.queue_ids[0] if len(want.queue_ids) == 1 else -1,
            until_s=self._until_s,
            is_open=want.selection is None and len(want.queue_ids) > 1 and not want.ordered,
            again=run,
        )
        self._request.held = True
        if not self._popping.hold(held):
            self._nothing(ResponseCode.POLLING_FULL, "too many wait already")

    def _append(self) -> bool:
        """Whether something is being handed out. Raises Refused, AppendError."""
        if self._waits_its_turn():
            return False
        granted = self._core.flow.grant(self._want.group)
        want = self._want._replace(
            messages_max=min(self._want.messages_max, granted.messages),
            bytes_max=min(self._want.bytes_max, granted.size_bytes),
        )
        done = self._connection.answer_by(self._request, self._done)
        return self._popping.pops.pop(want, done)

    def _waits_its_turn(self) -> bool:
        """Whether its group was given as much as its rate allows for now."""
        flow, want = self._core.flow, self._want
        held_back = flow.held_back(want.group)
        if held_back is None:
            return False
        if not self._is_held_back:
            self._core.rates.read_held_back(want.group)
            self._is_held_back = True
        turn_s = self._core.clock_s() + held_back.wait_s
        self._popping.look_again((want.group, want.topic), turn_s)
        return True

    def _again(self, is_last: bool) -> None:
        """Once more, for one that waited."""
        core = self._core
        try:
            core.role.check_serving()
            check_waited(core, self._want.group, self._want.topic)
            self._finished = self._append()
            if is_last and not self._finished:
                self._nothing(ResponseCode.POLLING_TIMEOUT, "no message for now")
        except EXPECTED as error:
            self._refuse(error)

    def _done(self, outcome: Got | Refused | AppendError) -> None:
        if isinstance(outcome, Refused | AppendError):
            self._refuse(outcome)
            return
        try:
            if outcome.messages:
                self._answer(outcome)
            elif not self._connection.closed:
                # The state has changed since the plan, or no message has passed the filter.
                self._popping.go_on(self._connection.answer_by(self._request, self._go_on))
        except EXPECTED as error:
            self._refuse(error)

    def _go_on(self) -> None:
        try:
            self._core.role.check_serving()
            check_waited(self._core, self._want.group, self._want.topic)
            self.start()
        except EXPECTED as error:
            self._refuse(error)

    def _answer(self, got: Got) -> None:
        core, want = self._core, self._want
        counts, sizes = Counter[int](), Counter[int]()
        for each in got.messages:
            counts[each.queue_id] += 1
            sizes[each.queue_id] += each.size_bytes
        for queue_id, count in counts.items():
            queue = (want.group, want.topic, queue_id)
            next_offset = core.machine.popped.queue(*queue)
            cursor = 0 if next_offset is None else next_offset.cursor
            core.rates.got(queue, count, sizes[queue_id], cursor)
        core.flow.given(want.group, len(got.messages), sum(sizes.values()))
        header = headers.PopMessageResponseHeader(
            pop_time=got.pop_time_ms,
            invisible_time=want.invisible_ms,
            revive_qid=ORDERED_QUEUE if want.ordered else 0,
            rest_num=got.rest,
        )
        if is_ours(self._request):
            group = core.definitions.known_group(want.group)
            header = replace(
                header,
                redelivered=_redelivered(got.messages),
                retry_max_times=None if group is None else group.retry_max_times,
            )
        body = records_of(core, got.messages)
        answer = self._request.reply(ResponseCode.SUCCESS, encode_header(header), body, "FOUND")
        if not core.replies.send(self._request, self._connection, answer):
            self._put_back(got)
        self._finished = True

    def _put_back(self, got: Got) -> None:
        """Nobody is there any more to have them: let others have them at once."""
        bits = Counter[tuple[int, int]]()
        for each in got.messages:
            block = each.offset - each.offset % limits.POP_MERGED_MESSAGES
            bits[each.queue_id, block] |= 1 << each.offset - block
        for (queue_id, base), some in bits.items():
            row = Row(self._want.group, self._want.topic, queue_id, got.pop_time_ms, base, some)
            change = Change(row, self._core.assignments.now_ms(), uncounted=True, keeps_fence=False)
            self._popping.settling.change(change, ignored)

    def _nothing(self, code: ResponseCode, remark: str) -> None:
        queue = (self._want.group, self._want.topic, self._want.queue_ids[0])
        self._core.rates.got(queue, 0, 0, 0)
        bound = self._popping.pops.bound(self._want.group)
        answer = self._request.reply(code, remark=remark if bound is None else bound)
        self._core.replies.send(self._request, self._connection, answer)
        self._finished = True

    def _refuse(self, error: Expected) -> None:
        self._core.replies.refuse(self._request, self._connection, error)
        self._finished = True


def _redelivered(messages: list[Handed]) -> str | None:
    """The messages of an answer that were in flight before; None if none was."""
    bits = sum(1 << number for number, each in enumerate(messages) if each.again)
    return write_bits(bits) if bits else None


def records_of(core: Core, messages: list[Handed]) -> tuple[Buffer, ...]:
    """The records as they are sent: those next to each other in the log as one piece."""
    pieces: list[Buffer] = []
    start = end = -1
    for each in messages:
        if each.deliveries > 1:
            if end > start:
                pieces.append(core.log.view(start, end - start))
            start = end = -1
            record = core.log.view(each.position, each.size_bytes)
            pieces.append(with_reconsume_times(record, each.deliveries - 1))
            continue
        if each.position != end:
            if end > start:
                pieces.append(core.log.view(start, end - start))
            start = each.position
        end = each.position + each.size_bytes
    if end > start:
        pieces.append(core.log.view(start, end - start))
    return (b"".join(pieces),) if len(pieces) > limits.PULL_PIECES_MAX else tuple(pieces)
