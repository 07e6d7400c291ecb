"""Names that a client has elsewhere: an error says what they are here. Pure.

A program that was written for Kafka begins with `await producer.start()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

ELSEWHERE: Final = {
    "start": "enter its `with` block, or call open()",
    "stop": "leave its `with` block, or call close()",
    "send_and_wait": "send(message) waits until it is stored",
    "produce": "send(message), or send_soon(message)",
    "getone": "iterate, or call poll(1)",
    "getmany": "poll(max_messages, timeout_s)",
    "consume": "poll(max_messages, timeout_s)",
    "subscribe": "give `subscriptions={topic: tags}` when it is made",
    "assign": "give `assign=[queue, ...]` when it is made",
    "assignment": "`queues` has them",
    "seek_to_beginning": "seek_to(queue, 'first')",
    "seek_to_end": "seek_to(queue, 'last')",
    "shutdown": "leave its `with` block, or call close()",
    "position": "lag() says by queue how many messages are left",
    "highwater": "lag() says by queue how many messages are left",
    "end_offsets": "lag() says by queue how many messages are left",
    "committed": "commit() returns what is kept; `Admin.groups.progress(group)` has all",
    "partitions_for": "`Admin.topics.route(topic)` has a topic's queues",
    "partitions_for_topic": "`Admin.topics.route(topic)` has a topic's queues",
    "partition": "queue_id",
    "offset": "queue_offset",
    "headers": "properties",
    "timestamp": "store_timestamp_ms",
}
#: Parameters.
GIVEN_ELSEWHERE: Final = {
    "bootstrap_servers": "namesrv_addr",
    "group_id": "group",
    "auto_offset_reset": "consume_from, 'first' or 'last'",
    "enable_auto_commit": "auto_commit",
    "value_serializer": "encode",
    "value_deserializer": "decode",
    "linger_ms": "linger_s",
    "compression_type": "compression",
    "transactional_id": "name",
}


def hint_for(names: Iterable[str]) -> str:
    """The names of parameters here that have these names elsewhere; "" if none is known."""
    hints = [f"{each} is {GIVEN_ELSEWHERE[each]}" for each in names if each in GIVEN_ELSEWHERE]
    return "; ".join(hints)


class Hinting:
    """A client that says so."""

    if not TYPE_CHECKING:  # else a type checker would take any name for one that is there

        def __getattr__(self, name: str) -> object:
            hint = ELSEWHERE.get(name)
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(said if hint is None else f"{said}: {hint}", name=name, obj=self)
