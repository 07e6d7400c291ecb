"""The client: producers, consumers and administration, under trio, asyncio or neither.

General layout: `producer` and `consumer` are the faces (`blocking` has the same ones for programs
without an event loop) and `admin` is the operator's. Below them, `outbox`, `sender` and `fetching`
move batches and pulls, `replies` asks and answers, `transactions` ends what a broker keeps
half-sent, `filters` has brokers look at filters, `assignment` shares queues out, `leaders` finds
who leads, `session` and `peers` hold connections. What decides is pure: `batching`, `exchange`,
`delays`, `progress`, `retry`, `routing`, `subscriptions`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client.admin import Admin
    from client.consumer import Consumer
    from client.errors import (
        BadMessage,
        BufferFull,
        ClientClosed,
        ClientError,
        NoLeader,
        NoReply,
        NoRoute,
        NotAssigned,
        RecallTooLate,
        Refused,
        SendError,
        SendFailed,
        SendUnknown,
        TransactionEnded,
        TransactionUnknown,
    )
    from client.models import Message, Rebalance, ReceivedMessage, Reply, SendResult
    from client.pending import PendingSend
    from client.producer import Producer
    from client.subscriptions import Sql
    from client.transactions import Decision, Transaction
    from dledger.remoting.json_dialect import MessageQueue

__all__ = [
    "Admin",
    "BadMessage",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "Consumer",
    "Decision",
    "Message",
    "MessageQueue",
    "NoLeader",
    "NoReply",
    "NoRoute",
    "NotAssigned",
    "PendingSend",
    "Producer",
    "Rebalance",
    "RecallTooLate",
    "ReceivedMessage",
    "Refused",
    "Reply",
    "SendError",
    "SendFailed",
    "SendResult",
    "SendUnknown",
    "Sql",
    "Transaction",
    "TransactionEnded",
    "TransactionUnknown",
]

_HOMES = {
    "client.admin": "Admin",
    "client.consumer": "Consumer",
    "client.errors": "BadMessage BufferFull ClientClosed ClientError NoLeader NoReply NoRoute "
    "NotAssigned RecallTooLate Refused SendError SendFailed SendUnknown TransactionEnded "
    "TransactionUnknown",
    "client.models": "Message Rebalance ReceivedMessage Reply SendResult",
    "client.pending": "PendingSend",
    "client.producer": "Producer",
    "client.subscriptions": "Sql",
    "client.transactions": "Decision Transaction",
    "dledger.remoting.json_dialect": "MessageQueue",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is used: `mqadmin topicList` needs no consumer, and is faster."""
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'client' has no attribute {name!r}")
