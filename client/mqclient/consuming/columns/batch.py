"""Messages of one queue, one behind the other, as an answer brought them.

Messages of a large answer are rows of a table: a message object is made when you look at it, and
values of all messages are read by column. A few messages, or those that a filter has left, are a
list: a table costs more by itself than a few messages do, and numpy's import more than a short
program that reads some.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias, overload

from dledger.buffers import Buffer
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits, tables
from mqclient.models import ReceivedMessage, messages_in

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dledger.remoting.record.table import RecordTable

    Column: TypeAlias = npt.NDArray[np.int64]


class MessageBatch(Sequence[ReceivedMessage]):
    """Messages of one queue; a slice is a batch, too. A column has a value for each message."""

    __slots__ = ()

    @overload
    def __getitem__(self, number: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, number: slice) -> MessageBatch: ...
    @abstractmethod
    def __getitem__(self, number: int | slice) -> ReceivedMessage | MessageBatch:
        """A message, or a slice of them."""

    @abstractmethod
    def listed(self) -> list[ReceivedMessage]:
        """All messages as a new list."""

    @property
    @abstractmethod
    def large_bytes(self) -> int:
        """Bytes of the bodies that were sent in parts."""

    @abstractmethod
    def bodies(self) -> list[bytes]:
        """The bodies, checked as `ReceivedMessage.body` is. Raises RecordError for the first body
        that is damaged or can't be fetched."""

    @property
    @abstractmethod
    def queue_offsets(self) -> Column:
        """The offset of each message in the queue, from 0."""

    @property
    @abstractmethod
    def store_times_ms(self) -> Column:
        """The time at which the broker stored each message, in ms, by the broker's clock."""

    @property
    def queue(self) -> MessageQueue:
        """The queue of the messages."""
        return self[0].queue


class Rows(MessageBatch):
    """Messages that are rows of a table."""

    __slots__ = ("_broker_name", "_numbers", "_table")

    def __init__(self, table: RecordTable, broker_name: str, numbers: range) -> None:
        self._table = table
        self._broker_name = broker_name
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, number: slice) -> MessageBatch: ...

    def __getitem__(self, number: int | slice) -> ReceivedMessage | MessageBatch:
        if not isinstance(number, slice):
            return ReceivedMessage(None, self._broker_name, self._table, self._numbers[number])
        numbers = self._numbers[number]
        if numbers.step != 1:
            return Listed(self.listed()[number])
        return Rows(self._table, self._broker_name, numbers)

    def listed(self) -> list[ReceivedMessage]:
        """All messages of the batch, as a list."""
        rows = repeat(self._broker_name), repeat(self._table), self._numbers
        return list(map(ReceivedMessage, repeat(None), *rows))

    @property
    def large_bytes(self) -> int:
        """The sum over messages without a body of their own."""
        numbers = self._numbers
        bodiless = [each for each in self._table.bodiless if each in numbers]
        return sum(self[each - numbers.start].large_bytes for each in bodiless)

    def bodies(self) -> list[bytes]:
        """The bodies, cut out of the answer together."""
        numbers = self._numbers
        bodies = self._table.bodies[numbers.start : numbers.stop]
        found = list(filter(None, bodies))
        if len(found) == len(bodies):
            return found
        return [self[number].body if body is None else body for number, body in enumerate(bodies)]

    @property
    def queue_offsets(self) -> Column:
        """Queue offsets of the table."""
        return self._table.queue_offsets[self._numbers.start : self._numbers.stop]

    @property
    def store_times_ms(self) -> Column:
        """Store times of the table, in ms."""
        return self._table.store_timestamps_ms[self._numbers.start : self._numbers.stop]


class Listed(MessageBatch):
    """Messages that are objects already."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[ReceivedMessage]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, number: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, number: slice) -> MessageBatch: ...

    def __getitem__(self, number: int | slice) -> ReceivedMessage | MessageBatch:
        if isinstance(number, slice):
            return Listed(self._messages[number])
        return self._messages[number]

    def listed(self) -> list[ReceivedMessage]:
        """A copy of the list."""
        return [*self._messages]

    @property
    def large_bytes(self) -> int:
        """The sum over all messages."""
        return sum([message.large_bytes for message in self._messages])

    def bodies(self) -> list[bytes]:
        """The body of each message."""
        return [message.body for message in self._messages]

    @property
    def queue_offsets(self) -> Column:
        """The offset of each message."""
        return column([message.queue_offset for message in self._messages])

    @property
    def store_times_ms(self) -> Column:
        """The store time of each message, in ms."""
        return column([message.store_timestamp_ms for message in self._messages])


def column(numbers: list[int]) -> Column:
    """Numbers as an array. Raises ConfigError without numpy."""
    tables.needed("a column of messages")
    import numpy as np  # noqa: PLC0415 - see above

    return np.array(numbers, np.int64)


def batch_in(records: Buffer, broker_name: str) -> MessageBatch:
    """The messages in a broker's answer of raw records. Raises RecordError."""
    first_bytes = int.from_bytes(records[:4], "big")
    if len(records) <= limits.READ_TOGETHER_MIN * first_bytes or not tables.at_hand():
        return Listed(messages_in(records, broker_name))
    from dledger.remoting.record.table import RecordTable  # noqa: PLC0415 - see above

    table = RecordTable(records)
    return Rows(table, broker_name, range(len(table)))
