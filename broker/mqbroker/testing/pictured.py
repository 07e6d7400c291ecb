"""Pictures of a table, or of all of the state, for tests that compare them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from dledger.slices import drained
from mqbroker.state.derived.consume_queue import ConsumeQueues, QueueEnds
from mqbroker.state.machine import Machine
from mqbroker.state.memory import Memory
from mqbroker.state.rows.picture import Encoded, Fields
from mqbroker.state.saved.snapshot import State, decode_state, encode_state


def rows_in(picture: Encoded | Generator[None, None, Encoded]) -> Any:
    """The rows that a table gives to a picture."""
    encoded = drained(picture) if isinstance(picture, Generator) else picture
    return _tuples(msgspec.msgpack.decode(b"".join(encoded.pieces())))


def saved_state_of(memory: Memory) -> State:
    """The state as a snapshot would give it back."""
    fields: Fields = {}
    drained(memory.picture(fields))
    return drained(decode_state(b"".join(encode_state(fields))))


def memory_of(machine: Machine) -> State:
    """The part that is kept in memory, without what a replica derives in files of its own."""
    fields: Fields = {}
    drained(Memory.picture(machine, fields))
    return drained(decode_state(b"".join(encode_state(fields))))


def ends_of(queues: ConsumeQueues) -> dict[str, QueueEnds]:
    """The ends of all consume queues."""
    return drained(queues.picture())[0]


def _tuples(value: Any) -> Any:
    """Rows as tuples, as the tables take and tests write them."""
    if isinstance(value, list):
        return [tuple(map(_tuples, row)) if isinstance(row, list) else row for row in value]
    return value
