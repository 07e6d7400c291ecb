"""Decides how to go on after a request that failed: a table of RocketMQ's codes, without I/O. Pure.

Three questions decide. Did it certainly have no effect (`definite`)? Can another try succeed, and
where: at the same server, at the server that it names, or at the present leader? Is there time
left? This is only for requests that the broker recognises when they are repeated, or that may be
repeated safely.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dledger.errors import Busy, RemotingError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.unavailable import LEADER_ADDR, OUTCOME, OUTCOME_UNKNOWN, RETRY_AFTER_MILLIS
from mqclient import limits


class Next(Enum):
    """Where the next try goes."""

    GIVE_UP = "give up"
    SAME = "the same server"
    REDIRECT = "the leader that the server named"
    FIND = "whoever leads now: the group's members must be asked"
    ELSEWHERE = "another group, if any will do: this one will go on declining"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The next step after one failed try, to be taken `delay_s` from now."""

    next: Next
    definite: bool
    reason: str
    delay_s: float = 0.0
    address: str | None = None


#: The server checked the request and declined: nothing was stored, and another try is useless.
_DECLINED = frozenset(
    {
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.PRODUCER_FENCED,
        ResponseCode.OFFSET_MOVED_ON,
        ResponseCode.BATCH_DECIDED,
    }
)


#: Another broker group may accept it, since each has its own topics and permissions.
_DECLINED_HERE = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})

#: Answers that another try, perhaps elsewhere, may change.
RETRIED_CODES = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY})


def is_fault(answer: Command) -> bool:
    """Whether the server failed while it served this, so that nobody knows what it did."""
    return answer.code == ResponseCode.SYSTEM_ERROR and answer.ext.get(OUTCOME) == OUTCOME_UNKNOWN


def may_pass(answer: Command) -> bool:
    """Whether another try, perhaps elsewhere, may be answered otherwise."""
    return answer.code in RETRIED_CODES or is_fault(answer)


def backoff_s(attempt: int) -> float:
    """How long to wait after the `attempt`-th failure (from 1): doubling, 5 to 50 ms."""
    doubled: float = limits.FIND_BACKOFF_MIN_S * 2.0 ** min(attempt - 1, 16)
    return min(doubled, limits.FIND_BACKOFF_MAX_S)


def judge(
    outcome: Command | RemotingError | Busy, *, attempt: int, now_s: float, deadline_s: float
) -> Verdict:
    """The next step after the `attempt`-th try (from 1) ended in `outcome`, which is no success."""
    verdict = _judge_code(outcome) if isinstance(outcome, Command) else _judge_error(outcome)
    if verdict.next in (Next.GIVE_UP, Next.ELSEWHERE):
        return verdict
    hurry = attempt == 1 and verdict.next in (Next.REDIRECT, Next.FIND) and not verdict.delay_s
    delay_s = 0.0 if hurry else max(backoff_s(attempt), verdict.delay_s)
    if now_s + delay_s >= deadline_s:
        over = "over" if deadline_s <= now_s + backoff_s(attempt) else "before that"
        return Verdict(Next.GIVE_UP, verdict.definite, f"{verdict.reason}; the deadline is {over}")
    return Verdict(verdict.next, verdict.definite, verdict.reason, delay_s, verdict.address)


def _judge_error(error: RemotingError | Busy) -> Verdict:
    if isinstance(error, Busy):
        return Verdict(Next.SAME, True, str(error))
    return Verdict(Next.FIND, error.definite, str(error))


def _judge_code(answer: Command) -> Verdict:
    reason = f"code {answer.code}: {answer.remark or 'no reason given'}"
    if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return _judge_unavailable(answer, reason)
    if is_fault(answer):
        return Verdict(Next.FIND, False, reason, limits.FAULT_RETRY_S)
    if answer.code == ResponseCode.SYSTEM_BUSY:
        return Verdict(Next.SAME, True, reason, retry_after_s(answer))
    if answer.code in _DECLINED_HERE:
        return Verdict(Next.ELSEWHERE, True, reason)
    return Verdict(Next.GIVE_UP, answer.code in _DECLINED, reason)


def _judge_unavailable(answer: Command, reason: str) -> Verdict:
    """Code 14: busy (`retryAfterMillis`), or not the leader (`leaderAddr`, if it knows one).

    `outcome` is "unknown" if leadership was lost on the way: the append may still be committed.
    """
    definite = answer.ext.get(OUTCOME) != OUTCOME_UNKNOWN
    if RETRY_AFTER_MILLIS in answer.ext:
        return Verdict(Next.SAME, definite, reason, retry_after_s(answer))
    leader = answer.ext.get(LEADER_ADDR)
    if isinstance(leader, str) and leader:
        return Verdict(Next.REDIRECT, definite, reason, address=leader)
    return Verdict(Next.FIND, definite, reason)


def retry_after_s(answer: Command) -> float:
    """When a busy server says to come again; 0 if it does not, or in a way not understood."""
    text = str(answer.ext.get(RETRY_AFTER_MILLIS, ""))
    if not text.isascii() or not text.isdigit() or len(text) > limits.TIME_DIGITS_MAX:
        return 0.0
    return int(text) / 1000
