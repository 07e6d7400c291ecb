"""A request that is answered with an error code: handlers refuse in this way only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from dledger.errors import AppendError, BadInput, StorageError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import ExtValue
from dledger.remoting.unavailable import RETRY_AFTER_MILLIS
from mqbroker import limits


class NotApplied(AppendError):
    """The entry is committed but has no effect on any replica: definitely nothing was stored."""


class Refused(BadInput):
    """Answer with `code`, the message as remark, and `ext`."""

    def __init__(self, code: int, remark: str, ext: Mapping[str, ExtValue] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.ext = ext or {}


def busy(reason: str) -> Refused:
    """The refusal at a bound. Not SYSTEM_BUSY: older stock producers do not retry that."""
    ext = {RETRY_AFTER_MILLIS: str(limits.RETRY_AFTER_MS)}
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"{reason}; try again later", ext)


def system_error(reason: str) -> Refused:
    """The refusal of what can't be done now, or not here."""
    return Refused(ResponseCode.SYSTEM_ERROR, reason)


def invalid(reason: str) -> Refused:
    """The refusal of a value."""
    return Refused(ResponseCode.INVALID_PARAMETER, reason)


def illegal_message(reason: str) -> Refused:
    """The refusal of a message."""
    return Refused(ResponseCode.MESSAGE_ILLEGAL, reason)


def no_permission(reason: str) -> Refused:
    """The refusal of what the asker may not do, or nobody may."""
    return Refused(ResponseCode.NO_PERMISSION, reason)


def no_group(group: str) -> Refused:
    """The refusal of a consumer group that does not exist."""
    reason = f"the group {group!r} does not exist"
    return Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, reason)


def of_broker(topic: str) -> str:
    """Why clients neither write to a topic nor change it."""
    return f"the topic {topic!r} belongs to the broker"


def no_queue(
    topic: str, queue_id: int, queues: int, code: ResponseCode = ResponseCode.SYSTEM_ERROR
) -> Refused:
    """The refusal of a queue that a topic does not have."""
    return Refused(code, lacks_queue(topic, queue_id, queues))


def lacks_queue(topic: str, queue_id: int, queues: int) -> str:
    """Why a queue can't be meant: its topic has fewer."""
    return f"queue {queue_id} of {topic!r} does not exist: it has {queues}"


@contextmanager
def refusing(
    kinds: type[Exception] | tuple[type[Exception], ...], refusal: Callable[[str], Refused]
) -> Iterator[None]:
    """Refuse, with its own words, what raises such an error within the block."""
    try:
        yield
    except kinds as error:
        raise refusal(str(error)) from error


def unreadable(error: StorageError) -> Refused:
    """The refusal for data that is damaged on this replica's disk.

    It is being repaired, or another replica leads soon; damaged data is never sent.
    """
    ext = {RETRY_AFTER_MILLIS: str(limits.RETRY_AFTER_MS)}
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error), ext)
