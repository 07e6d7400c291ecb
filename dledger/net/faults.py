"""Faults that nobody foresaw: told with what led to them, and counted.

Whatever one client sends may cost that client its connection, and nobody else anything. Where the
code that serves a client raises what is neither a refusal nor a failure that it knows, the fault is
noted here, and the server goes on. A count above 0 is a bug of ours: the log has its traceback.
"""

from __future__ import annotations

import time

from dledger.limits import FAULT_LOG_INTERVAL_S
from dledger.observe import get_logger

log = get_logger(__name__)


class Faults:
    """Those of one process."""

    def __init__(self) -> None:
        #: How many there were.
        self.count = 0
        #: What the last one was.
        self.last: Exception | None = None
        self._logged_s = float("-inf")
        self._left_out = 0

    def note(self, event: str, error: Exception, **request: object) -> None:
        """Count a fault, and log it with the request that it came from."""
        self.count += 1
        self.last = error
        now_s = time.monotonic()
        if now_s - self._logged_s < FAULT_LOG_INTERVAL_S:
            self._left_out += 1
            return
        log.error(event, **request, left_out=self._left_out, exc_info=error)
        self._logged_s, self._left_out = now_s, 0
