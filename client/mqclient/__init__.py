"""The client: producers, consumers and administration, under trio, asyncio or neither.

``producing``    sends messages
``consuming``    reads messages as a member of a group
``bulk``         sends columns of many messages
``ranges``       reads queues by ranges of offsets, for no group
``admin``        shows and changes a cluster, for operators
``commands``     the administration on the command line: `mqadmin`
``blocking``     the same classes for programs without an event loop: same names, no `await`
``connection``   what all of them share: routes, leaders, connections
``lookup``       one message by its unique key (pure)
``compression``  compressed bodies
``large``        bodies that are too large for one record
``models``       messages and results
``stopping``     stops a program in order, by signals
``user_properties``  keys and properties of a message: which can be kept (pure)
``tables``       numpy, imported when it is needed, and off the event loop
``arguments``    numbers that an application gives, checked
``signatures``   the types of all that it gives, checked
``hooks``        interceptors and codecs around sends and handlers
``metrics``      numbers of what clients do, for whoever collects them
``contrib``      hooks and metrics, ready to use: codecs, OpenTelemetry, Prometheus
``habits``       names that clients have elsewhere (pure)
``errors``       what can go wrong
``limits``       the bounds, and the defaults of what a user may set
"""

from __future__ import annotations

from dledger.loading import listed, when_used
from dledger.version import __version__ as __version__

# Commands come through here first: until they see to Ctrl-C nothing that takes time is imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dledger.errors import (
        BadInput,
        Busy,
        ConfigError,
        ConnectFailed,
        ConnectionLost,
        DledgerError,
        RecordError,
        RemotingError,
        RequestTimeout,
    )
    from dledger.remoting.json_dialect import MessageQueue
    from dledger.tls.options import Tls
    from mqclient.admin import Admin, UnknownTarget
    from mqclient.bulk.models import Columns
    from mqclient.bulk.writer import BulkWriter
    from mqclient.consuming.columns.batch import MessageBatch
    from mqclient.consuming.columns.many import ReadMany
    from mqclient.consuming.consumer import Consumer
    from mqclient.consuming.popping.consumer import PopConsumer
    from mqclient.consuming.popping.message import PoppedMessage
    from mqclient.consuming.sending_back import Nack
    from mqclient.consuming.sharing.plan import ConsistentHash, MachineRooms, NearbyRooms
    from mqclient.consuming.subscriptions import Sql
    from mqclient.consuming.transacting.transaction import OnceTransaction
    from mqclient.errors import (
        AcrossGroups,
        BadMessage,
        BatchLost,
        BufferFull,
        ClientClosed,
        ClientError,
        HandlerTimeout,
        HomeUnsure,
        NoLeader,
        NoReply,
        NoRoute,
        NotAssigned,
        OffsetsMoved,
        PartlyDone,
        ProducerFenced,
        RecallTooLate,
        Refused,
        SendError,
        SendFailed,
        SendUnknown,
        SubscriptionConflict,
        TooMuchUncommitted,
        TransactionClosed,
        TransactionEnded,
        TransactionUnanswered,
        TransactionUnknown,
        Undecodable,
    )
    from mqclient.metrics import Metrics
    from mqclient.models import Message, Rebalance, ReceivedMessage, Reply, SendResult
    from mqclient.producing.chunks.many import ManyFailed, SentMany
    from mqclient.producing.pending import PendingSend
    from mqclient.producing.producer import Producer
    from mqclient.producing.waiting.transactions import Decision, Transaction
    from mqclient.ranges.pieces import Gap, Piece
    from mqclient.ranges.reader import Bounds, RangeReader, TopicBounds
    from mqclient.stopping import run_until_signal

__all__ = [
    "AcrossGroups",
    "Admin",
    "BadInput",
    "BadMessage",
    "BatchLost",
    "Bounds",
    "BufferFull",
    "BulkWriter",
    "Busy",
    "ClientClosed",
    "ClientError",
    "Columns",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsistentHash",
    "Consumer",
    "Decision",
    "DledgerError",
    "Gap",
    "HandlerTimeout",
    "HomeUnsure",
    "MachineRooms",
    "ManyFailed",
    "Message",
    "MessageBatch",
    "MessageQueue",
    "Metrics",
    "Nack",
    "NearbyRooms",
    "NoLeader",
    "NoReply",
    "NoRoute",
    "NotAssigned",
    "OffsetsMoved",
    "OnceTransaction",
    "PartlyDone",
    "PendingSend",
    "Piece",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "ProducerFenced",
    "RangeReader",
    "ReadMany",
    "Rebalance",
    "RecallTooLate",
    "ReceivedMessage",
    "RecordError",
    "Refused",
    "RemotingError",
    "Reply",
    "RequestTimeout",
    "SendError",
    "SendFailed",
    "SendResult",
    "SendUnknown",
    "SentMany",
    "Sql",
    "SubscriptionConflict",
    "Tls",
    "TooMuchUncommitted",
    "TopicBounds",
    "Transaction",
    "TransactionClosed",
    "TransactionEnded",
    "TransactionUnanswered",
    "TransactionUnknown",
    "Undecodable",
    "UnknownTarget",
    "run_until_signal",
]

_HOMES = {
    "mqclient.admin": "Admin UnknownTarget",
    "mqclient.bulk.models": "Columns",
    "mqclient.bulk.writer": "BulkWriter",
    "mqclient.consuming.consumer": "Consumer",
    "mqclient.errors": "AcrossGroups BadMessage BatchLost BufferFull ClientClosed ClientError "
    "HandlerTimeout HomeUnsure NoLeader NoReply NoRoute NotAssigned "
    "OffsetsMoved PartlyDone ProducerFenced RecallTooLate Refused SendError SendFailed "
    "SendUnknown SubscriptionConflict TooMuchUncommitted TransactionClosed "
    "TransactionEnded TransactionUnanswered TransactionUnknown Undecodable",
    "mqclient.metrics": "Metrics",
    "mqclient.models": "Message Rebalance ReceivedMessage Reply SendResult",
    "mqclient.producing.chunks.many": "ManyFailed SentMany",
    "mqclient.producing.pending": "PendingSend",
    "mqclient.producing.producer": "Producer",
    "mqclient.consuming.popping.consumer": "PopConsumer",
    "mqclient.consuming.popping.message": "PoppedMessage",
    "mqclient.consuming.sending_back": "Nack",
    "mqclient.consuming.sharing.plan": "ConsistentHash MachineRooms NearbyRooms",
    "mqclient.consuming.columns.many": "ReadMany",
    "mqclient.consuming.columns.batch": "MessageBatch",
    "mqclient.consuming.subscriptions": "Sql",
    "mqclient.consuming.transacting.transaction": "OnceTransaction",
    "mqclient.producing.waiting.transactions": "Decision Transaction",
    "mqclient.ranges.pieces": "Gap Piece",
    "mqclient.ranges.reader": "Bounds RangeReader TopicBounds",
    "mqclient.stopping": "run_until_signal",
    "dledger.errors": "BadInput Busy ConfigError ConnectFailed ConnectionLost DledgerError "
    "RecordError RemotingError RequestTimeout",
    "dledger.remoting.json_dialect": "MessageQueue",
    "dledger.tls.options": "Tls",
}

__getattr__ = when_used(__name__, _HOMES)  # `mqadmin` needs no consumer, and starts faster
__dir__ = listed(__name__)
