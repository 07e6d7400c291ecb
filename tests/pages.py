"""Pages of web servers that tests start."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import Request, urlopen


def fetched(page: str | Request, timeout_s: float = 10) -> tuple[int, str]:
    """Status and body of a server's answer. OSError without an answer.

    A refusal is an answer, too. As an HTTPError it would hold its socket until the error is
    collected, and its warning would then fail a test that has nothing to do with it.
    """
    try:
        answer = urlopen(page, timeout=timeout_s)  # noqa: S310 - an address of the test's own
    except HTTPError as refusal:
        answer = refusal
    with answer:
        return answer.status, answer.read().decode()
