"""The client: producers, consumers and administration, under trio, asyncio or neither.

General layout: `producer` and `consumer` are the faces (`blocking` has the same ones for programs
without an event loop) and `admin` is the operator's. Below them, `sender` and `fetching` move
batches and pulls, `assignment` shares queues out, `leaders` finds who leads, `session` and `peers`
hold connections. What decides is pure: `batching`, `progress`, `retry`, `routing`, `allocation`,
`subscriptions`.
"""

from __future__ import annotations

from client.admin import Admin
from client.consumer import Consumer
from client.errors import (
    BadMessage,
    BufferFull,
    ClientClosed,
    ClientError,
    NoLeader,
    NoRoute,
    NotAssigned,
    Refused,
    SendError,
    SendFailed,
    SendUnknown,
)
from client.models import Message, Rebalance, ReceivedMessage, SendResult
from client.pending import PendingSend
from client.producer import Producer
from dledger.remoting.json_dialect import MessageQueue

__all__ = [
    "Admin",
    "BadMessage",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "Consumer",
    "Message",
    "MessageQueue",
    "NoLeader",
    "NoRoute",
    "NotAssigned",
    "PendingSend",
    "Producer",
    "Rebalance",
    "ReceivedMessage",
    "Refused",
    "SendError",
    "SendFailed",
    "SendResult",
    "SendUnknown",
]
