"""REGISTER_PRODUCER (9011), WRITE_ONCE (9012), DECISION_OF (9021): what named producers write.

A write is outputs of any topics of this broker group, and offsets up to which a consumer group has
processed their inputs. All of it is one entry. A member that has lost a queue's lock moves nothing,
nor does one that began elsewhere than at the group's offset: then nothing is stored.

A write may decide a batch, whose rows are staged (docs/explanation/spark-sink.md). Who wants to
know which they are asks for the decision.
"""

from __future__ import annotations

from functools import partial
from weakref import WeakKeyDictionary

from dledger.buffers import Buffer
from dledger.errors import BadInput, RecordError
from dledger.ledger.outcome import outcome_of
from dledger.net import Connection
from dledger.observe import get_logger
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import check_producer_name
from dledger.trust.rights import SIGNED
from mqbroker import limits
from mqbroker.flow.control import Arriving
from mqbroker.leader.appending.drafts import PlainDraft
from mqbroker.leader.appending.in_flight import Stored, Tell
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.leader.once import OnceAppender, once_draft
from mqbroker.refusal import Refused, busy, illegal_message, invalid, refusing
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.fencing import Fence
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_confirmed, by_leader
from mqbroker.requests.sending.claims import claim_to
from mqbroker.requests.sending.keys import check_keys
from mqbroker.requests.sending.produce import check_sendable, draft_of
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.groups.places import fault, has_queue, is_other_life
from mqbroker.state.once import Decision, OffsetMove, Once

_log = get_logger(__name__)


class OnceHandler:
    """Answers requests of named producers: registration, entries that are written once,
    decisions."""

    def __init__(self, core: Core, commits: OffsetCommits, fence: Fence) -> None:
        self._core = core
        self._once = OnceAppender(core.machine, core.log, core.definitions, core.appender, commits)
        self._fence = fence
        # How many names came over each connection.
        self._made: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    @by_leader(RequestCode.REGISTER_PRODUCER, rights=SIGNED)
    def register(self, request: Command, connection: Connection) -> Later[int]:
        """Give a name to the instance that asks; answered when that is in the log."""
        header = decode_header(headers.RegisterProducerHeader, request)
        _check_producer(header.producer_name)
        if not 0 < len(header.instance) <= limits.PRODUCER_INSTANCE_CHARACTERS_MAX:
            raise _invalid(
                f"an instance of {len(header.instance)} characters, not of 1 to "
                f"{limits.PRODUCER_INSTANCE_CHARACTERS_MAX}"
            )

        def answer(epoch: int) -> Command:
            return request.reply(ext=encode_header(headers.RegisterProducerResponseHeader(epoch)))

        self._count(header.producer_name, connection)
        claim = claim_to(self._core, header.producer_name, request, connection)
        now_ms = self._core.assignments.now_ms()

        def register(tell: Tell[int]) -> None:
            self._once.register(header.producer_name, header.instance, now_ms, tell, claim)

        return Later(register, answer)

    def _count(self, name: str, connection: Connection) -> None:
        """Count a new name; refuse it if its client has made more than it would leave free."""
        producers = self._core.machine.producers
        if producers.epoch(name) is not None:
            return
        made, free = self._made.get(connection, 0), limits.PRODUCERS_MAX - len(producers)
        if made and made >= free:
            raise busy(
                f"{made} producers were named over this connection; {free} names are left for "
                "others"
            )
        self._made[connection] = made + 1

    @by_leader(RequestCode.WRITE_ONCE, rights=rights.WRITE_ONCE)
    def write(self, request: Command, connection: Connection) -> Later[Stored]:
        """Append outputs and offsets together; the answer follows when they can be read."""
        core = self._core
        header = decode_header(headers.WriteOnceHeader, request)
        _check_header(header)
        claim_to(core, header.producer_name, request, connection)
        once = _once(header, request.payload)
        # A stored row stays so, whatever became of its topics and locks since.
        is_new = not self._once.knows(once.stamp)
        if is_new:
            self._check_moves(header, connection)
        parts, arriving = self._parts(request, header, is_new=is_new)
        with refusing(RecordError, illegal_message):
            draft = once_draft(once, parts, core.assignments, core.store_host)

        def answer(stored: Stored) -> Command:
            response = headers.WriteOnceResponseHeader(
                position=stored.positions[0] if stored.positions else -1,
                offsets=list(stored.offsets),
                store_timestamp=stored.store_timestamp_ms,
                duplicate=stored.duplicate,
            )
            return request.reply(ext=encode_header(response))

        admit = partial(core.admit, *arriving)
        topics = dict.fromkeys(topic for topic, _, _ in header.parts)
        return Later(partial(self._once.write, draft, once, admit=admit), answer, (*topics,))

    @by_confirmed(RequestCode.DECISION_OF, rights=SIGNED)
    def decision_of(self, request: Command, _: Connection) -> Command:
        """The last batch that was decided under a name, and what it consists of."""
        return self.decided(request)

    async def take_over(self, name: str, instance: str) -> None:
        """Claim a name, so that no earlier instance writes any more. Raises Refused,
        AppendError."""
        now_ms = self._core.assignments.now_ms()
        await outcome_of(partial(self._once.register, name, instance, now_ms))

    def decided(self, request: Command) -> Command:
        """The producer's epoch and its last batch decision, in answer to DECISION_OF."""
        header = decode_header(headers.DecisionOfHeader, request)
        _check_producer(header.producer_name)
        producers = self._core.machine.producers
        last = self._core.machine.decisions.last(header.producer_name)
        decision = self._once.decision(header.producer_name)
        response = headers.DecisionOfResponseHeader(
            epoch=producers.epoch(header.producer_name) or 0,
            batch=-1 if last is None else last.batch,
            is_kept=decision is not None,
        )
        content = b"" if decision is None else decision.content
        return request.reply(ext=encode_header(response), body=content)

    def _parts(
        self, request: Command, header: headers.WriteOnceHeader, *, is_new: bool
    ) -> tuple[list[PlainDraft], list[Arriving]]:
        """A draft for each part, all checked before a topic is made for any; and what of it has to
        keep to its topic's rate: what is stored already has not."""
        core = self._core
        body = memoryview(request.payload)
        size = sum(size for _, size, _ in header.parts) + (header.content_size or 0)
        if size != len(body):
            raise _invalid(f"parts and a decision that are not {len(body)} bytes, as the body is")
        drafts, arriving, at, words = [], list[Arriving](), 0, 0
        for topic, size, runs in header.parts:
            part = headers.ProduceHeader(
                topic=topic, producer_group=header.producer_name, runs=runs
            )
            topic_config = check_sendable(core, part) if is_new else None
            draft, words_here = draft_of(core, body[at : at + size], part)
            if topic_config is not None:
                arriving.append(Arriving(topic_config, len(draft.starts), draft.size))
            drafts.append(draft)
            at += size
            words += words_here
        check_keys(_messages(header), words)
        return drafts, arriving

    def _check_moves(self, header: headers.WriteOnceHeader, connection: Connection) -> None:
        if header.moves:
            self._core.definitions.ensure_group(header.group)
        lives = header.lives or [0] * len(header.moves)
        for (topic, queue_id, begin, end, token), life in zip(header.moves, lives, strict=True):
            self._core.definitions.topic(topic)
            if min(begin, end) < 0 or not has_queue(self._core.machine, topic, queue_id):
                raise _invalid(f"queue {queue_id} of {topic!r} going from {begin} to {end}")
            reason = fault(self._core.machine, topic, queue_id, max(begin, end))
            if is_other_life(self._core.machine, topic, life):
                reason = f"{topic!r} was made again since this transaction began"
            if reason is not None:
                raise Refused(ResponseCode.OFFSET_MOVED_ON, f"{reason}: nothing was stored")
            key = QueueKey(header.group, topic, queue_id)
            if token is not None:
                self._fence.check(key, token)
            elif not self._fence.counts(key, connection.id):
                raise Refused(
                    ResponseCode.NOT_LOCK_OWNER,
                    f"queue {queue_id} of {topic!r} is locked for another member of group "
                    f"{header.group!r}: nothing was stored",
                )
            if self._fence.is_popped(key):
                raise Refused(
                    ResponseCode.OFFSET_MOVED_ON,
                    f"members of group {header.group!r} have messages in hand that they popped "
                    f"from queue {queue_id} of {topic!r}: nothing was stored. Pull or pop, not "
                    "both in one group",
                )


def _once(header: headers.WriteOnceHeader, body: Buffer) -> Once:
    """The note of a write."""
    parts = (
        *(header.producer_name, header.epoch, header.stream, header.sequence, header.group),
        [OffsetMove(*move[:4]) for move in header.moves],
        [size for _, size, _ in header.parts],
    )
    if header.batch is None:
        return Once(*parts)
    content = bytes(memoryview(body)[len(body) - (header.content_size or 0) :])
    return Decision(*parts, header.batch, content)


def _check_header(header: headers.WriteOnceHeader) -> None:
    _check_producer(header.producer_name)
    if not (
        0 <= header.stream < limits.STREAMS_PER_PRODUCER_MAX
        and header.epoch > 0
        and header.sequence >= 0
    ):
        raise _invalid(
            f"write {header.sequence} in stream {header.stream}, epoch {header.epoch}: streams "
            f"are 0 to {limits.STREAMS_PER_PRODUCER_MAX - 1}"
        )
    if len(header.parts) > limits.PARTS_PER_WRITE_MAX:
        raise _invalid(f"{len(header.parts)} topics, above {limits.PARTS_PER_WRITE_MAX}")
    if len(header.moves) > limits.MOVES_PER_WRITE_MAX:
        raise _invalid(f"{len(header.moves)} offsets, above {limits.MOVES_PER_WRITE_MAX}")
    if header.lives is not None and len(header.lives) != len(header.moves):
        raise _invalid(f"{len(header.lives)} lives of {len(header.moves)} offsets' topics")
    if len({move[:2] for move in header.moves}) < len(header.moves):
        raise _invalid("a queue with two offsets")
    if header.group and not header.moves:
        raise _invalid(f"a group, {header.group[:80]!r}, and none of its queues")
    messages = _messages(header)
    if messages > limits.MESSAGES_PER_BATCH_MAX:
        raise _invalid(f"{messages} messages, above {limits.MESSAGES_PER_BATCH_MAX}")
    size = header.content_size or 0
    if not 0 <= size <= limits.DECISION_BYTES_MAX or (header.batch is None and size):
        raise _invalid(f"a decision of {size} bytes, not of 0 to {limits.DECISION_BYTES_MAX}")
    if header.batch is not None and header.batch < 0:
        raise _invalid(f"batch {header.batch}: the first is 0")
    if any(size <= 0 for _, size, _ in header.parts):
        raise _invalid("a part without records")


def _messages(header: headers.WriteOnceHeader) -> int:
    return sum(count for _, _, runs in header.parts for _, count in runs)


def _check_producer(name: str) -> None:
    with refusing(BadInput, _invalid):
        check_producer_name(name)


def _invalid(what: str) -> Refused:
    return invalid(f"a named producer's request has {what}")
