"""Staged entries of a batch: what a half message says of them, and which of them a decision names.
Pure.

A staged entry is a half message whose body is finished records (docs/explanation/spark-sink.md).
Its property `STAGED` says for whom it waits: the producer's name, the epoch of the instance that
staged it, its batch, and the broker group that decides. A decision names entries by broker group,
by their offset in the queue of half messages and their position in the log, in the order in which
they become messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.remoting.names import check_producer_name
from dledger.remoting.numbers import INT64_MAX, is_number

#: (offset, position) of staged entries by broker group, in order.
Places: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]

_PARTS = 4


class Staged(NamedTuple):
    """For whom an entry waits."""

    name: str
    epoch: int
    batch: int
    home: str

    @property
    def text(self) -> str:
        """The value of the property."""
        return " ".join((self.name, str(self.epoch), str(self.batch), self.home))


def parse_staged(text: str) -> Staged:
    """Read what `Staged.text` made. Raises BadInput if it is something else."""
    parts = text.split(" ")
    if len(parts) != _PARTS or not parts[3]:
        raise BadInput(f"STAGED={text!r:.200}: it is a name, an epoch, a batch and a broker group")
    name, epoch, batch, home = parts
    check_producer_name(name)
    return Staged(name, _number(epoch), _number(batch), home)


def _number(text: str) -> int:
    if not is_number(text, len(str(INT64_MAX))):
        raise BadInput(f"STAGED has {text!r:.100} where a number is")
    number = int(text)
    if number > INT64_MAX:
        raise BadInput(f"STAGED has {number}, above {INT64_MAX}")
    return number


def encode_places(places: Places) -> bytes:
    """The content of a decision."""
    return msgspec.msgpack.encode(places)


def decode_places(content: Buffer) -> Places:
    """Read what `encode_places` made. Raises BadInput if it is something else."""
    try:
        return msgspec.msgpack.decode(content, type=dict[str, list[tuple[int, int]]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"a decision that names no staged entries: {error}") from error
