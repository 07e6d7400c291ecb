"""Entries by which messages that were popped too often become dead letters. Pure.

Such a message is stored once more, for its group's dead letters, and is acknowledged. If those were
two entries, a leader that dies between them would leave a message that is a dead letter and comes
again, to be a dead letter twice. So both are one entry of messages: its first two records, in the
broker's own topic, are a mark and a note of what is acknowledged; the others are the dead letters.

The leader appends it only while the message is in the hands of who gives it up, and nothing that
would change that is on its way. If an operator has set the group's offset in the moment between,
that stands: then there is nothing to acknowledge any more.

The mark reads like a move out of a topic that no version has, so that an older replica stops there
(see `mqbroker.state.once`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from dledger.buffers import Buffer
from mqbroker import limits
from mqbroker.state.aside import Unusable, decoded
from mqbroker.state.groups.popping import PopAck, SettlePopped, check_settling

GIVEN_UP_MARK: Final = b"GIVEN-UP 0"


class GivenUp(msgspec.Struct, frozen=True, array_like=True):
    """The note: what is acknowledged. `sizes` are those of the parts in bytes, in order."""

    acks: list[PopAck]
    now_ms: int
    sizes: list[int]

    @property
    def settled(self) -> SettlePopped:
        """The note as a settlement, as if members had acknowledged."""
        return SettlePopped(self.acks, [], self.now_ms)


def decode_given_up(body: Buffer) -> GivenUp:
    """The note in a record's body. Raises Unusable for bytes that no leader writes."""
    given_up = decoded(body, GivenUp, "it says that messages are given up, and not which")
    if not 0 <= given_up.now_ms <= limits.TIME_MS_MAX or any(size <= 0 for size in given_up.sizes):
        raise Unusable(f"it gives messages up at {given_up.now_ms} ms, {given_up.sizes!s:.80}")
    check_settling(given_up.settled)
    return given_up
