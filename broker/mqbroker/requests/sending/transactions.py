"""END_TRANSACTION (37), and CHECK_TRANSACTION_STATE (39), which asks how a transaction ended.

Steps and checks are the reference's (EndTransactionProcessor, AbstractTransactionalMessageCheck).
The request names the half message twice, by its position and its offset in the queue of half
messages; both come from the answer to the send, and are the same on every replica. The request is
one-way: a refusal is only logged, and a producer whose request was lost is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from dledger.errors import StorageError
from dledger.net import Connection
from dledger.observe import get_logger
from dledger.raft.appends import Appended, OnDone
from dledger.remoting import headers
from dledger.remoting import message as names
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import HALF_TOPIC
from dledger.remoting.record import Record
from mqbroker.leader.definitions import ignored
from mqbroker.leader.transactions import Half, Timing, Transactions
from mqbroker.refusal import Refused, invalid, system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_leader

_COMMIT, _ROLLBACK = 8, 12

_log = get_logger("mqbroker.requests.sending.transactions")


class TransactionHandler:
    """Answers the first, and sends the second."""

    def __init__(self, core: Core, clients: ClientHandler) -> None:
        self._core = core
        self._clients = clients
        timing = Timing(
            core.config.transaction_time_out,
            core.config.transaction_check_interval,
            core.config.transaction_check_max,
        )
        self.transactions = Transactions(
            core.machine,
            core.entries,
            core.role,
            core.definitions,
            core.assignments,
            timing,
            core.store_host,
        )

    @by_leader(RequestCode.END_TRANSACTION, rights=rights.ENDED)
    def end(self, request: Command, _: Connection) -> Command | Later[Appended]:
        """Commit or roll back a half message, as its producer decides. A committed message can be
        pulled when this is answered."""
        header = decode_header(headers.EndTransactionHeader, request)
        if header.commit_or_rollback not in (_COMMIT, _ROLLBACK):
            return request.reply()  # not known yet: the producer will be asked
        half = Half(header.tran_state_table_offset, self._record(header))
        if half.staged is not None:
            raise invalid(f"half message {half.offset} is staged for a batch: its decision ends it")
        commit = header.commit_or_rollback == _COMMIT
        end = partial(self.transactions.end, half, commit=commit)

        def answer(_: Appended) -> Command:
            self._count(half, commit=commit)
            return request.reply()

        return Later(end, answer)

    def _count(self, half: Half, *, commit: bool) -> None:
        """A transaction has ended as its producer said."""
        topic, record = half.properties.get(names.REAL_TOPIC, ""), half.record
        traffic, now_ms = self._core.rates.traffic, self._core.clock_ms()
        after_s = max(0, now_ms - record.store_timestamp_ms) / 1000
        if commit:
            traffic.commit(topic, after_s, max(0, now_ms - record.born_timestamp_ms) / 1000)
        else:
            traffic.roll_back(topic, after_s)

    def check(self) -> None:
        """Ask the producers of half messages that are due; give up those that were asked about
        too often, and drop those whose topic is deleted."""
        self.transactions.producer_came(cache(lambda group: bool(self._clients.producers(group))))
        checks = self.transactions.checks(self._core.assignments.now_ms())
        for half in checks.asked:
            self._guarded(self._ask, half)
        for half in checks.given_up:
            self._guarded(
                partial(self._end, "transaction given up", self.transactions.give_up), half
            )
        drop = partial(self.transactions.end, commit=False)
        for half in checks.over:
            self._guarded(partial(self._end, "transaction ended with its topic", drop), half)

    def _guarded(self, act: Callable[[Half], None], half: Half) -> None:
        """Act on one half message. If that fails, the others are still asked about."""
        try:
            act(half)
        except (StorageError, OSError):
            raise
        except Exception as error:
            self._core.faults.note("transaction not checked", error, offset=half.offset)

    @staticmethod
    def _end(what: str, end: Callable[[Half, OnDone], None], half: Half) -> None:
        topic = half.properties.get(names.REAL_TOPIC)
        _log.warning(what, offset=half.offset, topic=topic)
        try:
            end(half, ignored)
        except Refused as refused:
            _log.info("transaction waits", offset=half.offset, reason=str(refused))

    def _record(self, header: headers.EndTransactionHeader) -> Record:
        """The half message that a request names. Refused if it names another one."""
        record = self._core.asked_record(header.commit_log_offset)
        group = names.properties_decode(record.properties).get(names.PGROUP)
        if (
            record.topic != HALF_TOPIC
            or record.queue_offset != header.tran_state_table_offset
            or group != header.producer_group
            or not self._is_stored(record)
        ):
            raise system_error(
                f"position {header.commit_log_offset} holds no half message of the producer group "
                f"{header.producer_group!r} at offset {header.tran_state_table_offset}"
            )
        return record

    def _is_stored(self, record: Record) -> bool:
        """Whether this is the half message at its offset, and not bytes in a message's body."""
        queue = self._core.machine.queues.get(HALF_TOPIC, 0)
        units = queue.read(record.queue_offset, 1) if queue is not None else None
        return units is not None and units["position"].tolist() == [record.physical_offset]

    def _ask(self, half: Half) -> None:
        """Send CHECK_TRANSACTION_STATE to one producer of the group, if one is connected."""
        properties = half.properties
        producers = self._clients.producers(properties.get(names.PGROUP, ""))
        if not producers:
            self.transactions.unheard(half)
            return
        record = half.record
        header = headers.CheckTransactionStateHeader(
            tran_state_table_offset=half.offset,
            commit_log_offset=record.physical_offset,
            msg_id=properties.get(names.UNIQ_KEY),
            transaction_id=properties.get(names.UNIQ_KEY),
            offset_msg_id=names.offset_message_id(record.store_host, record.physical_offset),
        )
        body = self.transactions.as_sent(half)
        code = RequestCode.CHECK_TRANSACTION_STATE
        connection = producers[half.offset % len(producers)]
        connection.send_oneway_request(Command(code, encode_header(header), body))
