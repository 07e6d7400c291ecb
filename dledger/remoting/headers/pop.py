"""Headers of POP: messages handed out for a time, instead of queues to members.

Times are milliseconds; `pop_time` names a delivery (see `dledger.remoting.receipts`). A `queue_id`
of -1 means any queue of the topic. Stock clients send these codes with JSON headers only, since
their other one has no room for them.
"""

from __future__ import annotations

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64

ANY_QUEUE = -1

# Values of `PopMessageHeader.init_mode`: where a group begins that has no offset as yet.
FROM_FIRST = 0
FROM_LAST = 1
FROM_END = 2
"""Ours: behind the last message, whatever there is."""


class PopMessageHeader(Header, frozen=True):
    """POP_MESSAGE (200050). `max_msg_bytes` is ours."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    max_msg_bytes: Int32 | None = None


class PopMessageResponseHeader(Header, frozen=True):
    """The answer to a pop. Without the three texts clients make the messages' handles.

    `redelivered` (Base64, as in a batch ack, by the messages' order in the answer) is ours, and so
    is `retry_max_times`: after how many tries the group gives a message up.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None
    redelivered: str | None = None
    retry_max_times: Int32 | None = None


class AckMessageHeader(Header, frozen=True):
    """ACK_MESSAGE (200051): the message of a handle is done."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class AckMessageResponseHeader(Header, frozen=True):
    """Ours, to both kinds of ack: how many messages were somebody else's, or done, already."""

    late: Int32


class ChangeMessageInvisibletimeHeader(Header, frozen=True):
    """CHANGE_MESSAGE_INVISIBLETIME (200053).

    `bits` (Base64, as in a batch ack: the messages from `offset` on) and `keep` are ours: with
    `keep` the messages keep their handles.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool | None = None
    bits: str | None = None
    keep: bool | None = None


class ChangeMessageInvisibletimeResponseHeader(Header, frozen=True):
    """What the message's new handle is made of."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    late: Int32 | None = None


class PeekMessageHeader(Header, frozen=True):
    """PEEK_MESSAGE (200052): what a pop would get; answered like one."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class NotificationHeader(Header, frozen=True):
    """NOTIFICATION (200054): tell when there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header, frozen=True):
    """Whether there is, or too many wait for that already."""

    has_msg: bool
    polling_full: bool


class PollingInfoHeader(Header, frozen=True):
    """POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header, frozen=True):
    """How many pops wait."""

    polling_num: Int32
