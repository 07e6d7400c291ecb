"""Unexpected exceptions: logged with the request that led to them, and counted.

A client's request may cost that client its connection, and must not harm others. If the code that
serves it raises anything but an expected error, the fault is noted here, and the server goes on. A
count above 0 means a bug of ours: the log has its traceback.
"""

from __future__ import annotations

import time

from dledger.limits import FAULT_LOG_INTERVAL_S
from dledger.observe import get_logger

log = get_logger(__name__)


class Faults:
    """The faults of one process."""

    def __init__(self) -> None:
        #: How many faults there were.
        self.count = 0
        #: The last fault.
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
