"""A request that is answered with an error code: the one way in which handlers say no."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.errors import AppendError, BadInput, StorageError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import ExtValue
from dledger.remoting.unavailable import RETRY_AFTER_MILLIS
from mqbroker import limits


class NotApplied(AppendError):
    """The entry is committed and has no effect, on any replica: definitely nothing was stored."""


class Refused(BadInput):
    """Answer `code` with the message as remark, and `ext` beside it."""

    def __init__(self, code: int, remark: str, ext: Mapping[str, ExtValue] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.ext = ext or {}


def busy(reason: str) -> Refused:
    """The refusal at a bound. Not SYSTEM_BUSY: older stock producers do not retry that."""
    ext = {RETRY_AFTER_MILLIS: str(limits.RETRY_AFTER_MS)}
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"{reason}; try again later", ext)


def unreadable(error: StorageError) -> Refused:
    """The refusal where this replica's disk holds something else than was written.

    That is being mended, or another replica leads soon; nothing that is wrong is handed out.
    """
    ext = {RETRY_AFTER_MILLIS: str(limits.RETRY_AFTER_MS)}
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error), ext)
