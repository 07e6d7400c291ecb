"""The properties of the messages of a stock client's batch, as they are stored. Pure.

A message has its own properties, and those of its batch that it does not have itself. Some are not
kept, some are added; a delay or a transaction is refused. Messages of stock clients have none of
these, so their properties are looked at all at once, and stay the bytes that they are. If there is
anything odd in one of them, all are taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dledger.errors import BadInput
from dledger.remoting import message as names
from mqbroker.leader.appending.drafts import new_unique_key
from mqbroker.refusal import illegal_message, refusing

NOT_KEPT: Final = (names.POP_CK, names.CLUSTER, names.MSG_REGION, names.TRACE_ON)
"""Properties that are not kept, as in RocketMQ: WAIT stays in the messages of a batch, and is
removed from single messages."""

_REFUSED: Final = frozenset((*names.DELAYS, names.TRAN_MSG))
_SPECIAL: Final = frozenset((*_REFUSED, *NOT_KEPT))
_ANY_SPECIAL: Final = re.compile(
    b"\x02(?:%b)\x01" % b"|".join(re.escape(name.encode()) for name in sorted(_SPECIAL))
)
_WELL_FORMED: Final = re.compile(rb"(?:[^\x01\x02]+\x01[^\x01\x02]+\x02)*")
_KEY: Final = f"\x02{names.UNIQ_KEY}\x01".encode()


def batch_properties(
    common: dict[str, str], own: Sequence[bytes], added: bytes
) -> tuple[list[bytes], str]:
    """The properties with which each message is stored, and the first message's unique key.
    `common` are the batch's properties, `own` the messages', `added` is put behind each.

    Raises Refused for what no batch may have, BadInput for what is not UTF-8.
    """
    common = {name: value for name, value in common.items() if name != names.UNIQ_KEY}
    found = None if not _SPECIAL.isdisjoint(common) else _as_they_are(common, own, added)
    if found is None:
        found = [_taken_apart(common, each, added) for each in own]
    key = (b"\x02" + found[0]).partition(_KEY)[2].partition(b"\x02")[0] if found else b""
    return found, key.decode()


def _as_they_are(common: dict[str, str], own: Sequence[bytes], added: bytes) -> list[bytes] | None:
    """The messages' bytes with what is added; None if there is anything odd."""
    ended = [each if not each or each[-1] == 2 else each + b"\x02" for each in own]
    joined = b"".join(ended)
    if not _WELL_FORMED.fullmatch(joined) or _ANY_SPECIAL.search(b"\x02" + joined):
        return None
    try:
        joined.decode()
        inherited = [
            (f"\x02{name}\x01".encode(), f"{name}\x01{value}\x02".encode())
            for name, value in common.items()
        ]
    except UnicodeError:
        return None
    stored = []
    for each in ended:
        begun = b"\x02" + each
        keys = begun.count(_KEY)
        if keys > 1:
            return None
        if not keys:
            each += f"{names.UNIQ_KEY}\x01{new_unique_key()}\x02".encode()  # noqa: PLW2901
        for begins, whole in inherited:
            if begun.find(begins) < 0:
                each = whole + each  # noqa: PLW2901
        stored.append(each + added)
    return stored


def _taken_apart(common: dict[str, str], own: bytes, added: bytes) -> bytes:
    """The properties of one message, name by name."""
    properties = common | names.properties_decode(own)
    if not _REFUSED.isdisjoint(properties):
        raise illegal_message("a batch can't be delayed or transactional")
    for name in NOT_KEPT:
        properties.pop(name, None)
    if names.UNIQ_KEY not in properties:
        properties[names.UNIQ_KEY] = new_unique_key()
    with refusing(BadInput, illegal_message):
        return names.properties_encode(properties) + added
