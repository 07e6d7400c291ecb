"""Headers of the requests that put messages into the log.

SEND_MESSAGE and its one-letter twin carry one message (SEND_BATCH_MESSAGE a list) whose record
the broker builds. PRODUCE is ours: its body is finished stored records, and the broker only fills
in what depends on their place in the log.
"""

from __future__ import annotations

from dledger.remoting.headers.base import Header


class SendMessageHeader(Header, frozen=True):
    """SEND_MESSAGE (10), SEND_REPLY_MESSAGE (324).

    `queue_id` below 0 lets the broker choose; `properties` is the encoded property string.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    batch: bool | None = None
    broker_name: str | None = None


class SendMessageV2Header(Header, frozen=True):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325).

    `SendMessageHeader` in letters.
    """

    a: str
    b: str
    c: str
    d: int
    e: int
    f: int
    g: int
    h: int
    i: str | None = None
    j: int | None = None
    k: bool | None = None
    l: int | None = None  # noqa: E741 -- the protocol's name
    m: bool | None = None
    n: str | None = None

    def to_v1(self) -> SendMessageHeader:
        """Return the same header under its long names."""
        return SendMessageHeader(
            producer_group=self.a,
            topic=self.b,
            default_topic=self.c,
            default_topic_queue_nums=self.d,
            queue_id=self.e,
            sys_flag=self.f,
            born_timestamp=self.g,
            flag=self.h,
            properties=self.i,
            reconsume_times=self.j,
            unit_mode=self.k,
            max_reconsume_times=self.l,
            batch=self.m,
            broker_name=self.n,
        )


class SendMessageResponseHeader(Header, frozen=True):
    """The answer to every kind of send. Stock clients fail unless the first three are there.

    `msg_id` is the offset message id (`message.offset_message_id`); of a batch, ids joined by
    commas.
    """

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class RecallMessageHeader(Header, frozen=True):
    """RECALL_MESSAGE (370). `recall_handle` came with the answer to the send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(Header, frozen=True):
    """RECALL_MESSAGE: the unique key of the message that was taken back."""

    msg_id: str


class PushReplyMessageToClientHeader(Header, frozen=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from the broker to who made a request; the body follows.

    What the replier sent, and beside it where and when it passed. Hosts are "address:port".
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    born_host: str
    store_host: str
    store_timestamp: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None


class ProduceHeader(Header, frozen=True):
    """PRODUCE (9001). The body is stored records back to back (see `dledger.remoting.record`).

    `runs` are (queue id, record count) in the order of the body, so the records of one queue lie
    together. Queue offset, physical offset, store timestamp and store host are zero in every
    record.
    """

    topic: str
    producer_group: str
    runs: list[tuple[int, int]]


class ProduceResponseHeader(Header, frozen=True):
    """Where the records of a PRODUCE request went.

    `position` is the physical offset of the first; the others follow without a gap. `offsets` are
    (queue id, queue offset of the run's first record), one per run. `duplicate` says that an
    earlier copy of the request had been stored already, and these are that copy's offsets.
    """

    position: int
    offsets: list[tuple[int, int]]
    store_timestamp: int
    duplicate: bool


class CheckTransactionStateHeader(Header, frozen=True):
    """CHECK_TRANSACTION_STATE (39), one-way, from the broker to a producer; the record follows.

    The producer answers by END_TRANSACTION with the two offsets.
    """

    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class EndTransactionHeader(Header, frozen=True):
    """END_TRANSACTION (37), one-way. `commit_or_rollback`: 8 commit, 12 roll back, 0 not known."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    msg_id: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    topic: str | None = None
