"""Headers of POP: messages handed out for a time, instead of queues to members.

Times are milliseconds; `pop_time` names a delivery (see `dledger.remoting.receipts`). A `queue_id`
of -1 means any queue of the topic. Stock clients send these codes with JSON headers only, since
their other encoding has no room for such high codes.
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
    """The answer to a pop. Without the three texts, clients make the messages' handles themselves.

    Two fields are ours: `redelivered` (Base64, as in a batch ack, by the messages' order in the
    answer), and `retry_max_times`, the number of tries after which the group gives a message up.
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
    """The answer to both kinds of ack, ours: how many messages belonged to another member or were
    done already."""

    late: Int32


class ChangeMessageInvisibletimeHeader(Header, frozen=True):
    """CHANGE_MESSAGE_INVISIBLETIME (200053).

    Two fields are ours: `bits` (Base64, as in a batch ack) are the messages from `offset` on; with
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
    """The answer to CHANGE_MESSAGE_INVISIBLETIME: the parts of the message's new handle."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    late: Int32 | None = None


class PeekMessageHeader(Header, frozen=True):
    """PEEK_MESSAGE (200052): the messages that a pop would get, in the answer of a pop."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class NotificationHeader(Header, frozen=True):
    """NOTIFICATION (200054): answer when there is a message to pop."""

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
    """The answer to NOTIFICATION: whether there is a message, and whether too many requests wait
    already."""

    has_msg: bool
    polling_full: bool


class PollingInfoHeader(Header, frozen=True):
    """POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header, frozen=True):
    """The answer to POLLING_INFO: how many pops wait."""

    polling_num: Int32
