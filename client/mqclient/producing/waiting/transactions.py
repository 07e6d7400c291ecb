"""Transactional messages: consumers see them if, and only if, the caller's own work was done.

The broker first stores the message as a *half message*, which consumers don't see. Then the caller
does its work (for example a row in a database), and the message is committed or rolled back. A
producer that dies in between leaves a half message behind. The broker asks a producer of the group
how the transaction ended, and the *checker* looks: is the row there? So the work must be found by
something that the message carries, such as its keys.

An exception in the middle says nothing about whether the work was done, so it commits nothing and
rolls nothing back: the checker decides, as RocketMQ's TransactionListener does. While a transaction
runs in this process the checker is not asked about it: it could not know the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, TypeAlias

from dledger.errors import BadInput, RemotingError
from dledger.observe import get_logger
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    CheckTransactionStateHeader,
    EndTransactionHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.message import PGROUP
from dledger.world import steady_s
from mqclient import limits
from mqclient.connection.retry import may_pass
from mqclient.connection.session import Session
from mqclient.errors import (
    BadMessage,
    ClientError,
    NoLeader,
    Refused,
    TransactionEnded,
    TransactionUnknown,
)
from mqclient.lookup import unique_key_query
from mqclient.models import ReceivedMessage, SendResult, messages_in

log = get_logger(__name__)


class Decision(Enum):
    """The end of a transaction, by the numbers of END_TRANSACTION (37)."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0
    """Not known yet: the broker asks again later."""


#: Looks up how the transaction of a half message ended. It may be asked twice, and by any process.
Checker: TypeAlias = Callable[[ReceivedMessage], Decision | Awaitable[Decision]]


class Half(NamedTuple):
    """Identifies a half message to its broker group."""

    topic: str
    broker_name: str
    unique_key: str
    queue_offset: int
    position: int


class Transaction:
    """A transaction under way. `ended` is the end that the caller gave it, None if not yet."""

    def __init__(self, sent: SendResult, transactions: Transactions, timeout_s: float) -> None:
        #: Where the half message lies; its `message_id` is the transaction's id.
        self.sent = sent
        self.ended: Decision | None = None
        self._transactions = transactions
        self._timeout_s = timeout_s

    async def commit(self) -> None:
        """Commit: consumers get the message.

        Raises TransactionUnknown if no answer came, TransactionEnded if the message was rolled back
        or given up before, Refused if the topic is gone.
        """
        await self._end(Decision.COMMIT)

    async def rollback(self) -> None:
        """Roll back: no consumer ever gets the message. Raises TransactionUnknown or
        TransactionEnded."""
        await self._end(Decision.ROLLBACK)

    async def _end(self, decision: Decision) -> None:
        sent = self.sent
        half = Half(sent.topic, sent.broker_name, sent.message_id, sent.queue_offset, sent.position)
        self.ended = decision
        await self._transactions.end(half, decision, self._timeout_s)


class Transactions:
    """Ends the transactions of one producer group, and answers for them when a broker asks."""

    def __init__(self, session: Session, group: str, checker: Checker | None) -> None:
        self._session = session
        self._group = group
        self._checker = checker
        self._running: set[str] = set()
        self._checks = 0

    def check_allowed(self, topic: str) -> None:
        """Raise BadMessage if there is no checker for transactions."""
        if self._checker is None:
            raise BadMessage(
                f"a transaction with topic {topic!r} needs a checker: give the producer one "
                "(checker=...), or it is not known how it ended if this process dies"
            )

    @contextmanager
    def running(self, unique_key: str) -> Iterator[None]:
        """Within this block the checker is not asked about a transaction."""
        self._running.add(unique_key)
        try:
            yield
        finally:
            self._running.discard(unique_key)

    async def end(self, half: Half, decision: Decision, timeout_s: float) -> None:
        """Commit or roll back; return when the end is in the broker group's log."""
        self._session.check_open()
        deadline_s = steady_s() + timeout_s
        header = EndTransactionHeader(
            producer_group=self._group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.position,
            commit_or_rollback=decision.value,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            topic=half.topic,
        )
        command = Command(RequestCode.END_TRANSACTION, encode_header(header))
        answer = await self._ask(half, command, decision, timeout_s)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            # The transaction has ended: by an earlier try whose answer was lost, or elsewhere.
            committed = await self._committed(half, decision, deadline_s - steady_s())
            if committed != (decision is Decision.COMMIT):
                raise TransactionEnded(half.topic, half.unique_key, committed=committed)
        elif answer.code != ResponseCode.SUCCESS:
            what = f"the end of transaction {half.unique_key}"
            raise Refused(what, half.broker_name, answer.code, answer.remark)

    def asked(self, address: str, command: Command) -> None:
        """Answer a broker that asks how a transaction ended (39)."""
        if self._checks >= limits.TRANSACTION_CHECKS_MAX:
            log.warning("too many transactions to check, will be asked again", address=address)
            return
        self._checks += 1
        self._session.tasks.start_soon(self._check, address, command)

    async def _check(self, address: str, command: Command) -> None:
        try:
            broker_name = self._session.routes.group_of(address)
            header = decode_header(CheckTransactionStateHeader, command)
            (message,) = messages_in(command.payload, broker_name)
            if message.properties.get(PGROUP) != self._group:
                log.warning("asked about another group's transaction", message=repr(message))
            elif message.message_id not in self._running:
                await self._answer(header, message)
        except (BadInput, ValueError) as error:
            log.warning("a question that makes no sense", address=address, reason=str(error))
        except (ClientError, RemotingError) as error:
            log.warning("transaction not ended, will be asked again", reason=str(error))
        finally:
            self._checks -= 1

    async def _answer(self, header: CheckTransactionStateHeader, message: ReceivedMessage) -> None:
        if self._checker is None:
            return
        try:
            found = self._checker(message)
            # A value is converted, too. A value that is not a Decision fails here, and does not
            # end the producer.
            decision = Decision(await found if inspect.isawaitable(found) else found)
        except Exception:
            log.exception("checker failed, will be asked again", message=repr(message))
            return
        log.info("transaction checked", id=message.message_id, decision=decision.name)
        if decision is not Decision.UNKNOWN:
            half = Half(
                message.topic,
                message.broker_name,
                message.message_id,
                header.tran_state_table_offset,
                header.commit_log_offset,
            )
            await self.end(half, decision, limits.SEND_TIMEOUT_S)

    async def _committed(self, half: Half, decision: Decision, timeout_s: float) -> bool:
        """Whether the message of a transaction that has ended was committed."""
        query = unique_key_query(half.topic, half.unique_key)
        command = Command(RequestCode.QUERY_MESSAGE, encode_header(query))
        answer = await self._ask(half, command, decision, max(0.0, timeout_s))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        if answer.code != ResponseCode.SUCCESS:
            reason = f"code {answer.code}: {answer.remark or 'no reason given'}"
            raise TransactionUnknown(half.topic, half.unique_key, decision.name, reason)
        return any(
            message.record.prepared_offset == half.position
            for message in messages_in(answer.payload, half.broker_name)
        )

    async def _ask(
        self, half: Half, command: Command, decision: Decision, timeout_s: float
    ) -> Command:
        """The leader's answer to an end of a transaction. Raises TransactionUnknown if no definite
        one came."""
        try:
            finder = self._session.finder
            answer = await finder.ask(half.broker_name, command, timeout_s, half.topic)
        except (NoLeader, RemotingError) as error:
            reason = str(error)
        else:
            if not may_pass(answer):
                return answer
            reason = f"code {answer.code}: {answer.remark or 'no reason given'}"
        raise TransactionUnknown(half.topic, half.unique_key, decision.name, reason)
