"""Names that a client has elsewhere: whoever looks for them is told what they are here. Pure.

A program that was written for Kafka begins with `await producer.start()`.
"""

from __future__ import annotations

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
}


class Hinting:
    """A client that says so."""

    if not TYPE_CHECKING:  # else a type checker would take any name for one that is there

        def __getattr__(self, name: str) -> object:
            hint = ELSEWHERE.get(name)
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(said if hint is None else f"{said}: {hint}", name=name, obj=self)
