"""Headers of the requests that put messages into the log.

SEND_MESSAGE and its one-letter twin carry one message (SEND_BATCH_MESSAGE a list) whose record
the broker builds. PRODUCE is ours: its body is finished stored records, and the broker only fills
in what depends on their place in the log.
"""

from __future__ import annotations

import msgspec

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64


class SendMessageHeader(Header, frozen=True):
    """SEND_MESSAGE (10), SEND_REPLY_MESSAGE (324).

    `queue_id` below 0 lets the broker choose; `properties` is the encoded property string.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = None


class SendMessageV2Header(Header, frozen=True):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325).

    The fields are those of `SendMessageHeader` in its order, with one letter as the name of each.
    """

    a: str
    b: str
    c: str
    d: Int32
    e: Int32
    f: Int32
    g: Int64
    h: Int32
    i: str | None = None
    j: Int32 | None = None
    k: bool | None = None
    l: Int32 | None = None  # noqa: E741 -- the protocol's name
    m: bool | None = None
    n: str | None = None

    def to_v1(self) -> SendMessageHeader:
        """Return the same header under its long names."""
        return SendMessageHeader(*msgspec.structs.astuple(self))


class SendMessageResponseHeader(Header, frozen=True):
    """The answer to every kind of send. Stock clients fail unless the first three are there.

    `msg_id` is the offset message id (`message.offset_message_id`); of a batch, ids joined by
    commas.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class RecallMessageHeader(Header, frozen=True):
    """RECALL_MESSAGE (370). `recall_handle` came with the answer to the send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(Header, frozen=True):
    """The answer to RECALL_MESSAGE: the unique key of the message that was taken back."""

    msg_id: str


class PushReplyMessageToClientHeader(Header, frozen=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from the broker to the client that sent the request. The
    header has the fields of the reply, and when and through which hosts it came; the body is the
    reply's body. Hosts are "address:port".
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


class ProduceHeader(Header, frozen=True):
    """PRODUCE (9001). The body is stored records back to back (see `dledger.remoting.record`).

    `runs` are (queue id, record count) in the order of the body, so the records of one queue lie
    together. Queue offset, physical offset, store timestamp and store host are zero in every
    record.
    """

    topic: str
    producer_group: str
    runs: list[tuple[Int32, Int32]]


class ProduceResponseHeader(Header, frozen=True):
    """The answer to PRODUCE: where its records went.

    `position` is the physical offset of the first record; the others follow without a gap.
    `offsets` are (queue id, queue offset of the run's first record), one per run. `duplicate` says
    that an earlier copy of the request had been stored already; these are that copy's offsets.
    """

    position: Int64
    offsets: list[tuple[Int32, Int64]]
    store_timestamp: Int64
    duplicate: bool


class CheckTransactionStateHeader(Header, frozen=True):
    """CHECK_TRANSACTION_STATE (39), one-way, from the broker to a producer. The body is the record.

    The producer answers by END_TRANSACTION with the two offsets.
    """

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class EndTransactionHeader(Header, frozen=True):
    """END_TRANSACTION (37), one-way. `commit_or_rollback`: 8 commit, 12 rollback, 0 not known."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    topic: str | None = None
