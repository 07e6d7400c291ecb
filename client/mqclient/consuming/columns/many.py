"""The result of `poll_many`: messages by column, for programs that need no object for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, overload

from mqclient import tables
from mqclient.consuming.columns.batch import MessageBatch, column
from mqclient.models import ReceivedMessage

if TYPE_CHECKING:
    from mqclient.consuming.columns.batch import Column


class ReadMany(Sequence[ReceivedMessage]):
    """Messages in the order in which `poll` gives them. A message object is made when you look at
    the message.

    A column has a value for each message, in the same order. Each of the `batches` has messages
    of one queue, and columns of its own.
    """

    def __init__(self, batches: Sequence[MessageBatch]) -> None:
        self.batches = tuple(batches)
        self._ends = list(accumulate(map(len, batches)))

    def __repr__(self) -> str:
        return f"<ReadMany of {len(self)} messages in {len(self.batches)} batches>"

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, number: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, number: slice) -> list[ReceivedMessage]: ...

    def __getitem__(self, number: int | slice) -> ReceivedMessage | list[ReceivedMessage]:
        """A message, or a list of those of a slice."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        place = bisect_right(self._ends, number)
        batch = self.batches[place]
        return batch[number - self._ends[place] + len(batch)]

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return chain.from_iterable(batch.listed() for batch in self.batches)

    def bodies(self) -> list[bytes]:
        """The bodies, checked as `ReceivedMessage.body` is.

        Raises RecordError for the first body that is damaged or can't be fetched. Take the other
        bodies from the messages.
        """
        return list(chain.from_iterable(batch.bodies() for batch in self.batches))

    @property
    def queue_ids(self) -> Column:
        """The id of each message's queue, within its topic and broker group; `batches` have whole
        queues."""
        tables.needed("a column of messages")
        import numpy as np  # noqa: PLC0415 - see `MessageBatch`

        ids = [batch.queue.queue_id for batch in self.batches]
        return np.repeat(column(ids), [*map(len, self.batches)])

    @property
    def queue_offsets(self) -> Column:
        """The offset of each message in its queue, from 0."""
        return self._column([batch.queue_offsets for batch in self.batches])

    @property
    def store_times_ms(self) -> Column:
        """The time at which its broker stored each message, in ms, by the broker's clock."""
        return self._column([batch.store_times_ms for batch in self.batches])

    @staticmethod
    def _column(columns: Sequence[Column]) -> Column:
        tables.needed("a column of messages")
        import numpy as np  # noqa: PLC0415 - see `MessageBatch`

        return np.concatenate([column([]), *columns])
