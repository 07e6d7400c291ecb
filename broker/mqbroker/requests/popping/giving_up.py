"""A popped message that is sent back: it is stored once more and acknowledged, by one entry.

So a message that was popped too often is a dead letter once, and never comes again, whenever a
leader dies. What such an entry acknowledges is decided when it is appended, by what is applied and
what is on its way: a pop may be taking the message again, or another request may be giving it back.
Whatever comes behind the entry in the log finds the message done. A request that is repeated, since
its answer was lost with a leader, finds it done, too, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from mqbroker.leader.appending.drafts import NotedDraft, PlainDraft
from mqbroker.leader.appending.in_flight import Flight, InFlight, Stored, Tell
from mqbroker.refusal import busy
from mqbroker.requests.core import Core
from mqbroker.requests.popping.pops import Pops
from mqbroker.requests.popping.settling import Row, Settling
from mqbroker.state.aside import encode_note
from mqbroker.state.groups.bits import bits_to_bytes
from mqbroker.state.groups.deliveries import Delivery
from mqbroker.state.groups.given_up import GIVEN_UP_MARK, GivenUp
from mqbroker.state.groups.popping import PopAck


class GivingUp:
    """Appends a message's copy together with its ack, in one entry. `changed` is called with
    (group, topic) when one was applied."""

    def __init__(
        self, core: Core, pops: Pops, settling: Settling, changed: Callable[[str, str], None]
    ) -> None:
        self._core = core
        self._pops = pops
        self._settling = settling
        self._changed = changed
        self._copies: InFlight[Row, Flight] = InFlight()

    def give_up(self, row: Row, copy: PlainDraft, tell: Tell[Stored | None]) -> None:
        """Append the copy of the one message of `row`, and its ack; neither if it is not in its
        sender's hands any more. `tell` gets where the copy lies; None if there is none.

        Raises Refused or an AppendError if certainly nothing was appended.
        """
        if self._copies.get(row) is not None:
            raise busy(f"message {row.base} of queue {row.queue_id} is being given up")
        delivery = self._delivery(row)
        if (
            delivery is None
            or self._pops.is_leaving(row.group, row.topic, delivery)
            or self._settling.is_taking(row)
        ):
            tell(None)
            return
        core, now_ms = self._core, self._core.assignments.now_ms()
        ack = PopAck(*row[:5], bits_to_bytes(row.bits))
        note = encode_note(GivenUp([ack], now_ms, [copy.size]))
        draft = NotedDraft([GIVEN_UP_MARK, note], [copy], core.assignments, core.store_host)
        flight = Flight(draft, lambda _: self._changed(row.group, row.topic), tell)
        self._copies.add(row, flight)
        core.appender.submit(flight)

    def deliveries(self, row: Row) -> int:
        """How often the one message of `row` was handed out, its sender's time the last."""
        delivery = self._delivery(row)
        return 1 if delivery is None else delivery.deliveries

    def _delivery(self, row: Row) -> Delivery | None:
        """The delivery that its sender has the message by, if it is in flight."""
        queue = self._core.machine.popped.queue(row.group, row.topic, row.queue_id)
        of_fence = () if queue is None else queue.of_fence(row.fence)
        for each in of_fence:
            if each.base <= row.base and each.bits >> row.base - each.base & 1:
                return each
        return None
