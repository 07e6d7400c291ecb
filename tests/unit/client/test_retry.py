"""Retries: where the next try goes, when, and whether the failure is definite."""

from __future__ import annotations

import pytest

from dledger.errors import Busy, ConnectFailed, ConnectionLost, RemotingError, RequestTimeout
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from mqclient.connection.retry import Next, backoff_s, judge, retry_after_s


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Command(14, {"leaderAddr": "h:2"}), (Next.REDIRECT, True, "h:2")),
        (Command(14), (Next.FIND, True, None)),
        (Command(14, {"outcome": "unknown"}), (Next.FIND, False, None)),
        (Command(14, {"retryAfterMillis": "5"}), (Next.SAME, True, None)),
        (Command(2), (Next.SAME, True, None)),
        (Command(2, {"retryAfterMillis": "5"}), (Next.SAME, True, None)),
        (Command(13), (Next.GIVE_UP, True, None)),
        (Command(17), (Next.ELSEWHERE, True, None)),
        (Command(16), (Next.ELSEWHERE, True, None)),
        (Command(1), (Next.GIVE_UP, False, None)),
        (Command(1, {"outcome": "unknown"}), (Next.FIND, False, None)),
        (ConnectFailed("x"), (Next.FIND, True, None)),
        (ConnectionLost("x"), (Next.FIND, False, None)),
        (RequestTimeout("x"), (Next.FIND, False, None)),
        (Busy("x", 0.01), (Next.SAME, True, None)),
    ],
)
def test_each_outcome_has_its_next_step(
    answer: Command | RemotingError | Busy, expected: tuple[Next, bool, str | None]
) -> None:
    """An outcome, RocketMQ's code or our connection error, has its next step."""
    verdict = judge(answer, attempt=1, now_s=0.0, deadline_s=1.0)
    assert expected == (verdict.next, verdict.definite, verdict.address)


def test_the_first_failover_step_is_immediate() -> None:
    """A redirect or a lost connection is followed at once; being busy is not, nor is a fault: a
    request that causes it again costs the connection each time."""
    assert judge(ConnectionLost("x"), attempt=1, now_s=0.0, deadline_s=1.0).delay_s == 0.0
    assert judge(Command(2), attempt=1, now_s=0.0, deadline_s=1.0).delay_s > 0.0
    fault = Command(1, {"outcome": "unknown"})
    assert judge(fault, attempt=1, now_s=0.0, deadline_s=1.0).delay_s >= 0.5


def test_backoff_stays_between_5_and_50_ms() -> None:
    """The pause doubles from 5 ms up to 50 ms, for any number of tries."""
    assert [backoff_s(n) for n in range(1, 7)] == [0.005, 0.01, 0.02, 0.04, 0.05, 0.05]
    assert backoff_s(10_000) == 0.05


def test_nothing_is_tried_beyond_the_deadline() -> None:
    """A next try past the deadline is given up, with the reason."""
    verdict = judge(
        Command(int(ResponseCode.SYSTEM_BUSY), remark="full"),
        attempt=9,
        now_s=0.97,
        deadline_s=1.0,
    )
    assert verdict.next is Next.GIVE_UP
    assert "full" in verdict.reason
    assert "deadline" in verdict.reason


@pytest.mark.parametrize("code", [2, 14])
def test_a_busy_server_is_asked_again_when_it_says(code: int) -> None:
    """A busy server is asked again when it says, if that is before the deadline."""
    answer = Command(code, {"retryAfterMillis": "700"}, remark="full")
    assert judge(answer, attempt=1, now_s=0.0, deadline_s=1.0).delay_s == 0.7
    late = judge(answer, attempt=1, now_s=0.5, deadline_s=1.0)
    assert (late.next, late.definite) == (Next.GIVE_UP, True)
    assert late.reason.endswith("full; the deadline is before that")


@pytest.mark.parametrize("told", ["", "-5", "soon", "1e9", "9" * 5000, "\u0665", "0"])
def test_a_time_that_is_none_is_not_believed(told: str) -> None:
    """A retry time that makes no sense is replaced by the usual pause."""
    answer = Command(2, {"retryAfterMillis": told})
    assert retry_after_s(answer) == 0.0
    assert judge(answer, attempt=1, now_s=0.0, deadline_s=1.0).delay_s == backoff_s(1)
