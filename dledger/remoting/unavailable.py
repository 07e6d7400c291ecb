"""The ext fields of a SERVICE_NOT_AVAILABLE (14), SYSTEM_BUSY (2) or SYSTEM_ERROR (1) answer, which
say more than its remark.

Brokers write these fields and our own client reads them; stock clients ignore them and try another
broker. `docs/reference/broker.md` lists them for others.
"""

from __future__ import annotations

from typing import Final

LEADER_ADDR: Final = "leaderAddr"
"""The leader's "host:port" for clients, if it is known."""
RETRY_AFTER_MILLIS: Final = "retryAfterMillis"
"""A bound or a rate was reached, so nothing was stored; there may be room after so many ms."""
OUTCOME: Final = "outcome"
"""OUTCOME_UNKNOWN if leadership was lost, or the server failed, on the way; without the field
nothing was stored."""
OUTCOME_UNKNOWN: Final = "unknown"
