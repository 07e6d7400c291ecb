"""RECALL_MESSAGE (370): take back a message that waits for its timer.

The answer to the send of such a message carries a handle, which names it: RocketMQ's, five words in
base64, with the message's topic, broker, due time and unique key. The key index finds the message
by its unique key. It is taken back by a move that drops it (see `mqbroker.state.moves`), so that
holds on all replicas and over a failover. Once its delivery is on its way it is too late.
"""

from __future__ import annotations

from dledger.errors import BadInput
from dledger.ledger.outcome import Outcome
from dledger.net import Connection
from dledger.raft.appends import Appended
from dledger.remoting import headers
from dledger.remoting import message as names
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import TIMER_TOPIC
from dledger.remoting.receipts import RecallHandle
from dledger.trust.rights import PUB, topic
from mqbroker.leader.waiting.deliveries import Deliveries
from mqbroker.refusal import Refused, refusing
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_leader


class RecallHandler:
    """Takes delayed messages back (RECALL_MESSAGE), by an entry in the log."""

    def __init__(self, core: Core, deliveries: Deliveries) -> None:
        self._core = core
        self._deliveries = deliveries

    @by_leader(RequestCode.RECALL_MESSAGE, rights=topic(PUB))
    async def recall(self, request: Command, _: Connection) -> Command:
        """Take a message back; answered once no replica will deliver it."""
        header = decode_header(headers.RecallMessageHeader, request)
        with refusing(BadInput, _illegal):
            handle = RecallHandle.decode(header.recall_handle)
        if (handle.topic, handle.broker_name) != (header.topic, self._core.config.broker_name):
            raise _illegal(
                f"the recall handle is of topic {handle.topic!r} at {handle.broker_name!r}"
            )
        offset = self._waiting(handle)
        outcome: Outcome[Appended] = Outcome()
        if offset is None or not self._deliveries.recall(offset, outcome.set):
            raise _illegal(
                f"no message with the key {handle.unique_key!r} waits for its time: it was "
                "delivered, or taken back already"
            )
        await outcome.wait()
        return request.reply(
            ext=encode_header(headers.RecallMessageResponseHeader(handle.unique_key))
        )

    def _waiting(self, handle: RecallHandle) -> int | None:
        """Where the message waits, in the queue of timed ones; None if it does not."""
        for position in self._core.machine.keys.find(TIMER_TOPIC, handle.unique_key):
            record = self._core.find_record(position)
            if record is None:
                break  # the log's head has moved behind it
            properties = names.properties_decode(record.properties)
            found = properties.get(names.UNIQ_KEY), properties.get(names.REAL_TOPIC)
            # A renewed message has an older copy, which does not wait.
            waits = record.queue_offset in self._core.machine.timers
            if waits and (record.topic, *found) == (TIMER_TOPIC, handle.unique_key, handle.topic):
                return record.queue_offset
        return None


def _illegal(reason: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, reason)
