"""A request that is answered with an error code: handlers refuse in this way only."""

from __future__ import annotations

from collections.abc import Mapping

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


def invalid(reason: str) -> Refused:
    """The refusal of a value."""
    return Refused(ResponseCode.INVALID_PARAMETER, reason)


def no_queue(
    topic: str, queue_id: int, queues: int, code: ResponseCode = ResponseCode.SYSTEM_ERROR
) -> Refused:
    """The refusal of a queue that a topic does not have."""
    return Refused(code, f"queue {queue_id} of {topic!r} does not exist: it has {queues}")


def unreadable(error: StorageError) -> Refused:
    """The refusal for data that is damaged on this replica's disk.

    It is being repaired, or another replica leads soon; damaged data is never sent.
    """
    ext = {RETRY_AFTER_MILLIS: str(limits.RETRY_AFTER_MS)}
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error), ext)
