"""LIST_SCHEDULED (9010), ours: the delayed messages that arrive next, and when.

Those with a timer are found by their due times. Those of a delay level are the first ones of the
level's queue, so the first ones of all levels are looked at, and the earliest of both are shown.
"""

from __future__ import annotations

from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.rights import GET, cluster
from mqbroker import limits
from mqbroker.leader.waiting.deliveries import Deliveries
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_leader


class ScheduledHandler:
    """Answers LIST_SCHEDULED with a bounded number of delayed messages."""

    def __init__(self, core: Core, deliveries: Deliveries) -> None:
        self._core = core
        self._deliveries = deliveries

    @by_leader(RequestCode.LIST_SCHEDULED, rights=cluster(GET))
    def scheduled(self, request: Command, _: Connection) -> Command:
        """The records, back to back, the earliest first; no more than fit into an answer."""
        header = decode_header(headers.ListScheduledHeader, request)
        count = min(max(header.count, 0), limits.SCHEDULED_MAX)
        size_bytes, due_ms, body = 0, list[str](), list[memoryview]()
        for coming in self._deliveries.coming(header.begin_ms, count):
            size_bytes += coming.size
            if body and size_bytes > limits.PULL_BYTES_MAX:
                break
            due_ms.append(str(coming.due_ms))
            body.append(self._core.log.view(coming.position, coming.size))
        waiting = self._deliveries.waiting
        answer = headers.ListScheduledResponseHeader(due_ms=" ".join(due_ms), waiting=waiting)
        return request.reply(ext=encode_header(answer), body=b"".join(body))
