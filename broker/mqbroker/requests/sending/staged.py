"""STAGE (9022), END_STAGED (9023): rows that wait for the decision of their batch.

Rows are checked when they are staged, as PRODUCE checks them: found wrong at the end, they would
hold the log for ever. The driver of a batch ends its staged entries itself. Those that it has left,
and attempts that don't count, are ended by the word of the group that decides
(`mqbroker.leader.staged`): the leader looks every few seconds, asks each home group about its
producers, and acts on one entry after the other, since rows become messages in the decision's
order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

import trio

from dledger.errors import AppendError, BadInput, RemotingError, StorageError
from dledger.ledger.outcome import Outcome, outcome_of
from dledger.limits import PROVEN_NAME_CHARACTERS_MAX, STAGED_ENDED_TOGETHER_MAX
from dledger.net import Connection
from dledger.observe import get_logger
from dledger.program.pulse import beat
from dledger.raft.appends import Appended, OnDone
from dledger.remoting import headers
from dledger.remoting.bodies.staged import Staged, parse_staged
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import HALF_TOPIC
from dledger.remoting.record.batch import within
from dledger.remoting.record.columns import RecordColumns, record_starts
from dledger.trust.rights import PUB, topic
from mqbroker import limits
from mqbroker.flow.control import Arriving
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.leader.staged import Ends, Entry, HomeAnswer, ends_of
from mqbroker.leader.transactions import Half, Transactions
from mqbroker.refusal import Refused, busy, illegal_message, invalid, refusing
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_leader
from mqbroker.requests.sending.claims import claim_to
from mqbroker.requests.sending.homes import Homes
from mqbroker.requests.sending.keys import check_keys
from mqbroker.requests.sending.produce import check_sendable, draft_of, draft_of_checked
from mqbroker.state.decisions import staged_full, staging_group

_log = get_logger("mqbroker.requests.sending.staged")


class StagedHandler:
    """Takes staged entries, and looks after them while this replica leads the group."""

    def __init__(self, core: Core, homes: Homes, transactions: Transactions) -> None:
        self._core = core
        self._homes = homes
        self._transactions = transactions
        self._after = -1

    @by_leader(RequestCode.STAGE, rights=topic(PUB))
    def stage(self, request: Command, connection: Connection) -> Later[Stored]:
        """Keep the records; answered when they are stored. A repeat is another staged entry. Where
        the name is registered, only its owner stages under it; elsewhere each user has a share of
        the room."""
        core = self._core
        header = decode_header(headers.StageHeader, request)
        staged = _staged(header)
        if len(request.payload) > limits.STAGED_BYTES_MAX:
            raise illegal_message(
                f"records of {len(request.payload)} bytes; at most {limits.STAGED_BYTES_MAX} are "
                "staged at a time"
            )
        batch = headers.ProduceHeader(header.topic, header.producer_name, header.runs)
        records, words = draft_of(core, request.payload, batch)
        check_keys(len(records.starts), words)
        config = check_sendable(core, batch)
        claim = claim_to(core, staged.name, request, connection)
        group = staging_group(staged.name, claim.user)
        full = staged_full(core.machine.halves.owners.rows_by(1), group)
        if full is not None:
            raise busy(full)
        draft = self._transactions.staged_draft(header.topic, staged, group, request.payload)
        arriving = Arriving(config, len(records.starts), draft.size)

        def answer(stored: Stored) -> Command:
            response = headers.StageResponseHeader(stored.offsets[0][1], stored.positions[0])
            return request.reply(ext=encode_header(response))

        append = partial(
            core.appender.append, draft, None, admit=partial(core.admit, arriving),
            topic=header.topic,
        )  # fmt: skip
        return Later(append, answer, (header.topic,))

    @by_leader(RequestCode.END_STAGED, rights=rights.ENDED_STAGED)
    async def end(self, request: Command, _: Connection) -> Command:
        """Make messages of staged entries; they can be pulled when this is answered.

        Some of them are under way at a time: the log keeps their order, since they are appended
        in one term. The first that can't be appended keeps those behind it waiting.
        """
        header = decode_header(headers.EndStagedHeader, request)
        following = header.following or []
        if len(following) >= STAGED_ENDED_TOGETHER_MAX:
            raise invalid(
                f"following: {len(following) + 1} staged entries; at most "
                f"{STAGED_ENDED_TOGETHER_MAX} end by one request"
            )
        role, under_way = self._core.role, deque[Outcome[Appended]]()
        term = role.term
        for offset, position in ((header.offset, header.commit_log_offset), *following):
            half = self._to_end(offset, position)
            if half is None:
                continue
            if not role.serving or role.term != term:
                raise role.not_leader()
            outcome: Outcome[Appended] = Outcome()
            self._publish(half, outcome.set)
            under_way.append(outcome)
            if len(under_way) == limits.STAGED_ENDS_UNDER_WAY_MAX:
                await under_way.popleft().wait()
            else:
                await trio.lowlevel.checkpoint()  # others have their turn
        for outcome in under_way:
            await outcome.wait()
        return request.reply()

    def _to_end(self, offset: int, position: int) -> Half | None:
        """The staged entry at a place, or None if it has ended. Raises Refused."""
        machine = self._core.machine
        if offset not in machine.halves:
            if offset >= machine.queues.end(HALF_TOPIC, 0):
                raise invalid(f"nothing was staged at offset {offset}")
            return None
        half = self._transactions.half(offset)
        if half is None:
            raise busy(f"the staged entry {offset} is being ended")
        if half.staged is None or half.record.physical_offset != position:
            raise invalid(
                f"half message {offset} at {half.record.physical_offset} is not what was staged "
                f"at {position}"
            )
        return half

    def _publish(self, half: Half, tell: OnDone) -> None:
        config = self._transactions.lasting(half)
        records = within(half.record.body, config.read_queue_nums)
        runs = RecordColumns(records, record_starts(records)).runs
        counts = [(run.queue_id, run.records) for run in runs]
        header = headers.ProduceHeader(config.topic_name, "", counts)
        self._transactions.publish(half, draft_of_checked(self._core, records, header), tell)

    async def look_after(self) -> None:
        """Look at staged entries once, when it is time."""
        await beat(limits.STAGED_LOOK_S)
        core = self._core
        if not core.role.serving or not len(core.machine.halves):
            return
        now_ms = core.assignments.now_ms()
        entries, self._after = self._transactions.staged(now_ms, self._after)
        producers: dict[tuple[str, str], list[Entry]] = {}
        for entry in entries:
            producers.setdefault((entry.staged.name, entry.staged.home), []).append(entry)
        for (name, home), waiting in producers.items():
            try:
                await self._judge(name, home, waiting)
            except StorageError as error:
                _log.error("staged entries wait", producer=name, reason=str(error))
            except (RemotingError, Refused, BadInput, AppendError) as error:
                _log.info("staged entries wait", producer=name, home=home, reason=str(error))

    async def _judge(self, name: str, home: str, entries: Sequence[Entry]) -> None:
        answer = await self._homes.decision(name, home)
        if answer.offsets is not None:
            halves = self._core.machine.halves
            answer = HomeAnswer(
                answer.epoch, answer.batch, [each for each in answer.offsets if each in halves]
            )
        old_ms = self._core.assignments.now_ms() - int(limits.STAGED_KEPT_S * 1000)
        ends = ends_of(entries, answer, old_ms)
        _tell(name, home, answer, ends)
        await self._end(ends.ended, commit=True)
        await self._end(ends.dropped, commit=False)
        if ends.unfenced:
            await self._homes.fence(name, home)

    async def _end(self, offsets: Iterable[int], *, commit: bool) -> None:
        """End these, one after the other; the first that can't be keeps those behind it waiting."""
        for offset in offsets:
            half = self._transactions.half(offset)
            if half is None or half.staged is None:
                if commit and offset in self._core.machine.halves:
                    return  # it is on its way: what comes behind it waits for that
                continue
            drop = partial(self._transactions.end, half, commit=False)
            await outcome_of(partial(self._publish_if_it_can, half) if commit else drop)

    def _publish_if_it_can(self, half: Half, tell: OnDone) -> None:
        """Make messages of a staged entry; drop it if its topic is gone."""
        try:
            self._publish(half, tell)
        except Refused as refused:
            if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            _log.warning("staged entry dropped", offset=half.offset, reason=str(refused))
            self._transactions.end(half, tell, commit=False)


def _staged(header: headers.StageHeader) -> Staged:
    """The batch for which the records wait. Raises Refused if the stored entry could not name
    it."""
    staged = Staged(header.producer_name, header.epoch, header.batch, header.home)
    if len(header.home) > PROVEN_NAME_CHARACTERS_MAX:
        raise invalid(f"a home group of {len(header.home)} characters")
    with refusing(BadInput, invalid):
        parse_staged(staged.text)
    return staged


def _tell(name: str, home: str, answer: HomeAnswer, ends: Ends) -> None:
    if ends.unknown:
        _log.error(
            "staged entries can't be judged",
            producer=name,
            batch=answer.batch,
            count=len(ends.unknown),
            reason=f"the batch is decided, and the log of {home} has the decision no more",
        )
    if ends.ended or ends.dropped:
        _log.info(
            "staged entries ended",
            producer=name,
            batch=answer.batch,
            ended=len(ends.ended),
            dropped=len(ends.dropped),
        )
