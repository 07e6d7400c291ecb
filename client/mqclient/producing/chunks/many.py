"""Many messages that differ in nothing but their bodies: an object for each chunk of them.

A chunk is as many neighbours as a batch takes. They go to one queue, next to each other, and are
settled together, so only the end of each message is kept. Results are made when you look at them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import overload

from dledger.limits import MESSAGE_BODY_BYTES_MAX
from mqclient.connection.identity import numbered_key
from mqclient.errors import BadMessage, SendError
from mqclient.models import SendResult
from mqclient.producing.encoding import Pattern
from mqclient.producing.pending import PendingSlot


class Chunk(PendingSlot):
    """Messages next to each other. `numbers` are those of their keys, behind `key_front`."""

    __slots__ = ("count", "ends", "key_front", "numbers")

    def __init__(
        self,
        key_front: str,
        numbers: range,
        ends: Sequence[int],
        deadline_s: float,
        moves_left: int,
    ) -> None:
        super().__init__(numbered_key(key_front, numbers.start), deadline_s, moves_left)
        self.count = len(numbers)
        self.key_front = key_front
        self.numbers = numbers
        self.ends = ends

    @classmethod
    def of(cls, pattern: Pattern, deadline_s: float, moves_left: int) -> Chunk:
        """The first message of many, of a pattern whose keys are taken."""
        chunk = cls(pattern.key_front, pattern.numbers, (), deadline_s, moves_left)
        chunk.count = 1
        return chunk

    @classmethod
    def refused(cls, count: int, error: SendError) -> Chunk:
        """Messages that found no room."""
        chunk = cls("", range(count), (), 0.0, 0)
        chunk.error = error
        return chunk

    def key_of(self, number: int) -> str:
        """The key of the message of this number, from 0."""
        return numbered_key(self.key_front, self.numbers[number])

    def result_of(self, number: int) -> SendResult:
        """The result of the message of this number. Raises its error if the chunk failed."""
        error = self.error
        if error is not None:
            raise type(error)(error.reason, error.topic, error.broker_name, self.key_of(number))
        start_bytes = self.ends[number - 1] if number else 0
        return self._place(self.key_of(number), number, start_bytes)


class SentMany(Sequence[SendResult]):
    """The results of `send_many`, in the order of the bodies. A result object is made when you look
    at it; looking at the result of a failed message raises its error.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._ends = list(accumulate(chunk.count for chunk in chunks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __repr__(self) -> str:
        failed = sum(len(numbers) for numbers, _ in self.failures())
        waiting = sum(each.count for each in self._chunks if not each.settled)
        return f"<SentMany {len(self)} messages, {failed} failed, {waiting} not settled>"

    @overload
    def __getitem__(self, number: int) -> SendResult: ...
    @overload
    def __getitem__(self, number: slice) -> list[SendResult]: ...

    def __getitem__(self, number: int | slice) -> SendResult | list[SendResult]:
        """A result, or a list of those of a slice."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        place = bisect_right(self._ends, number)
        chunk = self._chunks[place]
        return chunk.result_of(number - self._ends[place] + chunk.count)

    def failures(self) -> Iterator[tuple[range, SendError]]:
        """The numbers of the messages that failed and their error, chunk by chunk."""
        for chunk, end in zip(self._chunks, self._ends, strict=True):
            if chunk.error is not None:
                yield range(end - chunk.count, end), chunk.error

    async def wait(self) -> None:
        """Wait until all messages are settled. Raises ManyFailed unless all were acknowledged."""
        for chunk in self._chunks:
            await chunk.wait_until_settled()
        failures = list(self.failures())
        if failures:
            raise ManyFailed(self, [(len(numbers), error) for numbers, error in failures])


class ManyFailed(SendError):
    """Some of many messages were not acknowledged; `sent` has the outcome of each.

    The error is definite if the outcome of each failed message is.
    """

    def __init__(self, sent: SentMany, failures: Sequence[tuple[int, SendError]]) -> None:
        failed = sum(count for count, _ in failures)
        worst = next((error for _, error in failures if not error.definite), failures[0][1])
        super().__init__(
            f"{failed} of {len(sent)} messages were not acknowledged, some for this: "
            f"{worst.reason}",
            worst.topic,
            worst.broker_name,
            worst.unique_key,
        )
        self.definite = worst.definite
        self.sent = sent


def check_bodies(topic: str, bodies: Sequence[bytes]) -> None:
    """Raise BadMessage, which names the first body that no record can hold."""
    if not {*map(type, bodies)} <= {bytes}:
        number, body = next((n, b) for n, b in enumerate(bodies) if type(b) is not bytes)
        raise BadMessage(
            f"messages to topic {topic!r}: body {number} must be bytes, not {type(body).__name__}"
        )
    if max(map(len, bodies), default=0) > MESSAGE_BODY_BYTES_MAX:
        number, size = next(
            (n, len(b)) for n, b in enumerate(bodies) if len(b) > MESSAGE_BODY_BYTES_MAX
        )
        raise BadMessage(
            f"messages to topic {topic!r}: body {number} has {size} bytes; at most "
            f"{MESSAGE_BODY_BYTES_MAX} are allowed"
        )


def chunks(
    bodies: Sequence[bytes], overhead_bytes: int, bytes_max: Callable[[], int], count_max: int
) -> Iterator[Sequence[bytes]]:
    """Cut bodies into chunks, each as long as the bounds allow; one body is always taken.

    `bytes_max` is called for each chunk, when it is cut.
    """
    ends = [0, *accumulate(map(overhead_bytes.__add__, map(len, bodies)))]
    at = 0
    while at < len(bodies):
        fits = bisect_right(ends, ends[at] + bytes_max()) - 1
        end = max(at + 1, min(fits, at + count_max))
        yield bodies[at:end]
        at = end
