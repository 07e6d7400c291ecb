"""A popped message that is sent back: it is stored once more and acknowledged, by one entry.

So a message that was popped too often is a dead letter once, and never comes again, whenever a
leader dies. What such an entry acknowledges is decided when it is appended, by what is applied and
what is on its way: a pop may be taking the message again, or another request may be giving it back.
Whatever comes behind the entry in the log finds the message done. A request that is repeated, since
its answer was lost with a leader, finds it done, too, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from mqbroker.leader.appending.append import Stored
from mqbroker.leader.appending.drafts import MessagesDraft
from mqbroker.leader.appending.noted import NotedDraft
from mqbroker.refusal import Refused, busy
from mqbroker.requests.core import Core
from mqbroker.requests.popping.pops import Pops
from mqbroker.requests.popping.settling import Row, Settling
from mqbroker.state.groups.bits import bits_to_bytes
from mqbroker.state.groups.deliveries import Delivery
from mqbroker.state.groups.given_up import GIVEN_UP_MARK, GivenUp, encode_given_up
from mqbroker.state.groups.popping import PopAck

#: Is told where the copy lies; None if the message was somebody else's, or done.
Done: TypeAlias = Callable[[Stored | Refused | None], None]


class GivingUp:
    """Appends such entries. `changed` is called with (group, topic) when one was applied."""

    def __init__(
        self, core: Core, pops: Pops, settling: Settling, changed: Callable[[str, str], None]
    ) -> None:
        self._core = core
        self._pops = pops
        self._settling = settling
        self._changed = changed
        self._on_their_way: set[Row] = set()

    def give_up(self, row: Row, copy: MessagesDraft, on_done: Done) -> None:
        """Append the copy of the one message of `row`, and its ack; neither if it is not in its
        sender's hands any more.

        Raises Refused if certainly nothing was appended.
        """
        if row in self._on_their_way:
            raise busy(f"message {row.base} of queue {row.queue_id} is being given up")
        delivery = self._delivery(row)
        if (
            delivery is None
            or self._pops.is_leaving(row.group, row.topic, delivery)
            or self._settling.is_taking(row)
        ):
            on_done(None)
            return
        core, now_ms = self._core, self._core.assignments.now_ms()
        ack = PopAck(*row[:5], bits_to_bytes(row.bits))
        note = encode_given_up(GivenUp([ack], now_ms, [copy.size]))
        draft = NotedDraft(GIVEN_UP_MARK, note, [copy], core.assignments, core.store_host)
        self._on_their_way.add(row)
        try:
            core.appender.append(draft, None, partial(self._done, row, on_done))
        except BaseException:
            self._on_their_way.discard(row)
            raise

    def _done(self, row: Row, on_done: Done, outcome: Stored | Refused) -> None:
        self._on_their_way.discard(row)
        self._changed(row.group, row.topic)
        on_done(outcome)

    def _delivery(self, row: Row) -> Delivery | None:
        """The delivery that its sender has the message by, if it is in flight."""
        queue = self._core.machine.popped.queue(row.group, row.topic, row.queue_id)
        of_fence = () if queue is None else queue.of_fence(row.fence)
        for each in of_fence:
            if each.base <= row.base and each.bits >> row.base - each.base & 1:
                return each
        return None
