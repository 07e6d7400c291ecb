"""Bounds of the port for figures. Units are in the names. Pure."""

from __future__ import annotations

from dledger.limits import KIB, MIB

PORT = 5557
"""The port for figures, as in RocketMQ."""
CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 16 * KIB
"""Bytes of a request's line and headers; a body is never taken."""
REQUEST_S = 5.0
"""Seconds for the whole of a request, from its first byte on."""
IDLE_S = 150.0
"""Seconds between two requests: Prometheus asks each minute, or more often, over one connection."""
ANSWER_S = 30.0
"""Seconds for a client to take an answer."""
ANSWER_BYTES_MAX = 16 * MIB
MEMORY_BYTES_MAX = 64 * MIB
"""Bytes of all answers on their way."""
RECEIVE_BYTES = 16 * KIB
SEND_BYTES = 64 * KIB
"""Bytes given to a socket at once."""

NAMES_SHOWN_MAX = 1_000
"""Topics, and groups, with series of their own; the others are folded into one."""
NAMES_CHOSEN_S = 600.0
"""Seconds between two choices of these names, while there are more."""
NAMES_PER_STEP = 500
"""Names looked at before others may have the loop."""
NAMES_ASKED_MAX = 100
"""Topics, and groups, that one request for details names."""
PAGE_S = 1.0
"""Seconds for which a page is good, or longer: `PAGE_COST_FACTOR` times as long as it took to
make."""
PAGE_COST_FACTOR = 50.0
HISTORY_STEP_S = 10.0
HISTORY_ROWS_MAX = 360
"""An hour of figures: some 150 KiB of a server's memory."""
HISTORY_ROWS_AT_ONCE = 60
"""Rows of one answer."""
PAGES_KEPT_MAX = 16
DETAILS_QUEUES_MAX = 20_000
"""Pairs of group and queue in the answer to one request for details."""
