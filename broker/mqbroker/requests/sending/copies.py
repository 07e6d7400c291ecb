"""Copies of a message, for its group's retries or dead letters: they always fit. Pure.

What the broker adds to a copy must have room in it, or the message could never be given up, and
those behind it in its queue would wait for ever. So a send is refused whose properties leave less
room than that: once for a first copy, and once more for a message that was sent again by its dead
letter. A consumer's own send to its retry topic is such a copy, too.

A log may hold messages that leave no room, from before that rule. The copy of one does without its
largest properties, and says which.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from dledger.buffers import Buffer
from dledger.limits import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_COPIED_BYTES_MAX,
    PROPERTIES_SENT_BYTES_MAX,
)
from dledger.remoting import message as names
from mqbroker import limits

_COPIED: Final = f"\x02{names.ORIGIN_MESSAGE_ID}\x01".encode()


def properties_max(topic: str, properties: bytes) -> int:
    """How many bytes the properties of a message may have that a client sends to a topic."""
    if topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        return PROPERTIES_BYTES_MAX
    is_copy = properties.startswith(_COPIED[1:]) or _COPIED in properties
    return PROPERTIES_COPIED_BYTES_MAX if is_copy else PROPERTIES_SENT_BYTES_MAX


def copied(
    properties: Buffer, without: Collection[str], added: Mapping[str, str]
) -> tuple[bytes, tuple[str, ...]]:
    """The properties of a copy, and the names of those that it does without, since they don't fit.

    Raises BadInput if `added` can't be carried.
    """
    kept = names.properties_pieces(properties, (*without, *added))
    more = names.properties_encode(added)
    if sum(map(len, kept)) + len(more) <= PROPERTIES_BYTES_MAX:
        return b"".join(kept) + more, ()
    room = PROPERTIES_BYTES_MAX - len(more) - limits.LEFT_OUT_BYTES_MAX
    left_out = []
    while sum(map(len, kept)) > room:
        largest = max(kept, key=len)
        kept.remove(largest)
        left_out.append(largest.partition(b"\x01")[0].decode(errors="replace"))
    listed = ",".join(left_out).encode()[: limits.LEFT_OUT_NAMES_BYTES_MAX].decode(errors="ignore")
    note = names.properties_encode({names.LEFT_OUT: listed})
    return b"".join(kept) + note + more, tuple(left_out)
