"""Where reading is in each queue, and how Spark's checkpoint keeps it. Pure.

A position is a life of the topic, a queue and an offset: a topic that is deleted and made again has
a queue of the same name, and other messages. In the checkpoint it is JSON, sorted, so that equal
positions are equal text::

    {"Orders": {"broker-a": {"0": 17, "1": 4, "life": 23}}}

The life is left out where brokers don't know lives, as Apache RocketMQ's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue

LIFE = "life"


class Position(NamedTuple):
    """The next offset to read of a queue, of a life of its topic (0: not known)."""

    offset: int
    life: int = 0


Positions = Mapping[MessageQueue, Position]


def to_json(positions: Positions) -> dict[str, dict[str, dict[str, int]]]:
    """The text that Spark is given for its checkpoint."""
    text: dict[str, dict[str, dict[str, int]]] = {}
    for queue, position in sorted(positions.items()):
        queues = text.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        queues[str(queue.queue_id)] = position.offset
        if position.life:
            queues[LIFE] = position.life
    return text


def from_json(
    found: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> dict[MessageQueue, Position]:
    """The positions that a checkpoint has as JSON. Raises BadInput for a checkpoint of something
    else."""
    positions: dict[MessageQueue, Position] = {}
    try:
        for topic, brokers in found.items():
            for broker, queues in brokers.items():
                life = queues.get(LIFE, 0)
                for queue_id, offset in queues.items():
                    if queue_id != LIFE:
                        queue = MessageQueue(topic, broker, int(queue_id))
                        positions[queue] = Position(_number(offset), _number(life))
    except (AttributeError, ValueError) as error:
        raise BadInput(f"the checkpoint has an offset of another source: {found!r:.200}") from error
    return positions


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not an offset")
    return value
