"""QUERY_MESSAGE (12): the messages of a topic that have a key, within a time window.

The key index gives candidates by hash, the newest first; then the messages' own keys are compared.
The answer has the newest ones, in the order of the log, as with the reference
(DefaultMessageStore); stock clients compare the keys once more. A key is a word of KEYS or the
unique key: the tools' flag `_UNIQUE_KEY_QUERY` changes nothing here.
"""

from __future__ import annotations

from dledger.limits import PROPERTIES_BYTES_MAX
from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting import message as names
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.record import Record
from dledger.trust.rights import GET, SUB, topic
from mqbroker import limits
from mqbroker.refusal import Refused
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_leader


class QueryHandler:
    """Answers QUERY_MESSAGE from the key index, up to a number of messages."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @by_leader(RequestCode.QUERY_MESSAGE, rights=topic(SUB, GET))
    def query(self, request: Command, _: Connection) -> Command:
        """The records, back to back."""
        header = decode_header(headers.QueryMessageHeader, request)
        self._core.definitions.topic(header.topic)
        messages_max = limits.QUERY_MESSAGES_MAX
        if request.encoding is HeaderEncoding.MSGPACK:
            messages_max = limits.QUERY_MESSAGES_OURS_MAX
        found, more = self._find(header, min(header.max_num, messages_max))
        if not found:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of {header.topic!r} has the key {header.key[:200]!r} in that time",
            )
        answer = headers.QueryMessageResponseHeader(
            index_last_update_timestamp=self._core.machine.clock_ms,
            index_last_update_phyoffset=self._core.log.status.end_position,
            more=more or None,
        )
        body = tuple(
            self._core.log.view(record.physical_offset, record.size) for record in reversed(found)
        )
        return request.reply(ext=encode_header(answer), body=body)

    def _find(
        self, header: headers.QueryMessageHeader, messages_max: int
    ) -> tuple[list[Record], bool]:
        """The newest first, as many as were asked for and fit into an answer; and whether there may
        be more."""
        if len(header.key) > PROPERTIES_BYTES_MAX:
            return [], False
        found: list[Record] = []
        size_bytes = read_bytes = 0
        for number, position in enumerate(self._core.machine.keys.find(header.topic, header.key)):
            if (
                len(found) >= messages_max
                or number >= limits.QUERY_CANDIDATES_MAX
                or read_bytes > limits.QUERY_CANDIDATES_BYTES_MAX
            ):
                return found, True
            record = self._core.find_record(position)
            if record is None:
                break  # the log's head has moved behind it
            read_bytes += record.size
            if record.store_timestamp_ms < header.begin_timestamp:
                break
            if self._is_wanted(record, header):
                size_bytes += record.size
                if found and size_bytes > limits.PULL_BYTES_MAX:
                    return found, True
                found.append(record)
        return found, False

    def _is_wanted(self, record: Record, header: headers.QueryMessageHeader) -> bool:
        if record.store_timestamp_ms > header.end_timestamp or record.topic != header.topic:
            return False
        properties = names.properties_decode(record.properties)
        if header.key not in {
            properties.get(names.UNIQ_KEY),
            *names.keys_of(properties),
        }:
            return False
        # A topic that was deleted and made again has other messages.
        queue = self._core.machine.queues.get(record.topic, record.queue_id)
        units = queue.read(record.queue_offset, 1) if queue is not None else None
        return units is not None and units["position"].tolist() == [record.physical_offset]
