"""mqclient for programs without an event loop: same names, no `async`, no `await`.

::

    with Producer("127.0.0.1:9876", group="PG") as producer:
        result = producer.send(Message("Orders", b"hello"))

Each object runs an asynchronous client in an event loop of its own, in a thread of its own that
ends with its `with` block. Methods have the parameters, results and errors of the asynchronous
methods; they may be called from several threads. In a fork of the process they raise ClientClosed.

``face``      the calls that wait for an event loop
``loop``      the thread with the event loop
``threads``   handlers, in threads of theirs
``producer``  sends, requests, transactions
``consumer``  messages in a loop
``pop``       messages for a time
``stopping``  stops a program in order, by signals
``ranges``    reads queues by ranges of offsets
``bulk``      sends columns
``admin``     the administration
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.loading import listed, when_used

if TYPE_CHECKING:
    from mqclient.blocking.admin import Admin, AdminPart
    from mqclient.blocking.bulk import BulkWriter
    from mqclient.blocking.consumer import Consumer, OnceTransaction
    from mqclient.blocking.face import Face
    from mqclient.blocking.pop import PopConsumer
    from mqclient.blocking.producer import Producer, Transaction
    from mqclient.blocking.ranges import RangeReader
    from mqclient.blocking.stopping import run_until_signal
    from mqclient.models import Message

__all__ = [
    "Admin",
    "AdminPart",
    "BulkWriter",
    "Consumer",
    "Face",
    "Message",
    "OnceTransaction",
    "PopConsumer",
    "Producer",
    "RangeReader",
    "Transaction",
    "run_until_signal",
]

_HOMES = {
    "mqclient.blocking.admin": "Admin AdminPart",
    "mqclient.blocking.bulk": "BulkWriter",
    "mqclient.blocking.consumer": "Consumer OnceTransaction",
    "mqclient.blocking.face": "Face",
    "mqclient.blocking.pop": "PopConsumer",
    "mqclient.blocking.producer": "Producer Transaction",
    "mqclient.blocking.ranges": "RangeReader",
    "mqclient.blocking.stopping": "run_until_signal",
    "mqclient.models": "Message",
}

__getattr__ = when_used(__name__, _HOMES)  # a sink of Spark needs no consumer, and starts faster
__dir__ = listed(__name__)
