"""The senders of a producer: two for each broker group, made when they are needed.

One sends batches in their order. The other sends delayed and half messages, each by itself, which
so do not wait for batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mqclient import limits
from mqclient.connection.session import Session
from mqclient.producing.batch import Batch, Kind
from mqclient.producing.batching import Accumulator, Budget
from mqclient.producing.naming import Claim, Named
from mqclient.producing.sending.sender import GroupSender

if TYPE_CHECKING:
    from mqclient.producing.measuring import Measured


class Senders:
    """The senders of one producer. `on_room` and `elsewhere` are as each `GroupSender` has them."""

    def __init__(
        self,
        session: Session,
        producer_group: str,
        budget: Budget,
        on_room: Callable[[], None],
        elsewhere: Callable[[GroupSender, Batch], None],
        *,
        linger_s: float,
        batch_bytes_max: int,
        at_least_once: bool,
        named: Named | None,
        measured: Measured | None,
    ) -> None:
        self._session = session
        self._producer_group = producer_group
        self._budget = budget
        self._on_room = on_room
        self._elsewhere = elsewhere
        self._linger_s = linger_s
        self._batch_bytes_max = min(batch_bytes_max, limits.BATCH_BYTES_MAX)
        self._at_least_once = at_least_once
        self._named = named
        self._measured = measured
        self._of_batches: dict[str, GroupSender] = {}
        self._of_waiting: dict[str, GroupSender] = {}

    def __iter__(self) -> Iterator[GroupSender]:
        yield from self._of_batches.values()
        yield from self._of_waiting.values()

    def of(self, broker_name: str, kind: Kind = Kind.SHARED) -> GroupSender:
        """The sender of a broker group's messages of this kind. Called for each message."""
        if kind.waits_at_broker:
            return self._of_waiting.get(broker_name) or self._begin_waiting(broker_name)
        return self._of_batches.get(broker_name) or self._begin_batches(broker_name)

    def serves(self, broker_name: str) -> bool:
        """Whether a group takes messages, as far as is known. Called for each message."""
        sender = self._of_batches.get(broker_name) or self._of_waiting.get(broker_name)
        if sender is not None:
            return sender.serving
        return self._session.routes.leader(broker_name) is not None

    def batches(self) -> list[Batch]:
        """Every batch that is not done."""
        return [batch for sender in self for batch in sender.accumulator.batches()]

    def bytes_max(self, broker_name: str) -> int:
        """The bound on a batch for a broker group."""
        if self._session.routes.stock_version(broker_name):
            return min(self._batch_bytes_max, limits.STOCK_BATCH_BYTES_MAX)
        return self._batch_bytes_max

    def _begin_batches(self, broker_name: str) -> GroupSender:
        is_stock = self._session.routes.stock_version(broker_name) > 0
        lanes = limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
        accumulator = Accumulator(
            broker_name,
            self._budget,
            linger_s=self._linger_s,
            batch_bytes_max=self.bytes_max(broker_name),
            lanes_per_topic=limits.QUEUES_PER_TOPIC_MAX if is_stock else lanes,
            one_queue_each=is_stock,
        )
        claim = None
        if self._named is not None:
            claim = Claim(self._named, broker_name, self._session.finder)
        sender = self._of_batches[broker_name] = self._begin(accumulator, claim)
        return sender

    def _begin_waiting(self, broker_name: str) -> GroupSender:
        many = limits.WAITING_IN_FLIGHT_PER_GROUP_MAX
        accumulator = Accumulator(
            broker_name, self._budget, lanes_per_topic=many, in_flight_max=many
        )
        sender = self._of_waiting[broker_name] = self._begin(accumulator)
        return sender

    def _begin(self, accumulator: Accumulator, claim: Claim | None = None) -> GroupSender:
        sender = GroupSender(
            accumulator,
            self._session.finder,
            self._producer_group,
            self._on_room,
            self._elsewhere,
            on_declined=self._session.doubt,
            at_least_once=self._at_least_once,
            claim=claim,
            measured=self._measured,
        )
        self._session.tasks.start_soon(sender.keep_time)
        self._session.tasks.start_soon(sender.keep_leader)
        return sender
