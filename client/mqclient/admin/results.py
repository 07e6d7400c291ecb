"""What the administration answers: plain values, printed as they are by `mqadmin -o json`.

Timestamps are milliseconds since 1970, 0 for never. Offsets count messages of one queue; maximum
offsets are exclusive. Fields are only added, never renamed: programs read them. They are structs
rather than dataclasses since those are slow to define, and a command should start at once.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

import msgspec

from dledger.remoting.message import host_decode
from mqclient.connection.addresses import join_address
from mqclient.models import ReceivedMessage

END = -1
"""As a timestamp: where a queue ends."""


class BrokerState(msgspec.Struct, frozen=True):
    """One broker process, as its name server and it itself see it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    #: leader, follower or candidate by its own word; unreachable if it does not answer.
    role: str
    term: int | None = None
    version: str = ""
    #: Messages per second, over the last ten.
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    log_end_bytes: int | None = None
    #: Log entries that it has not applied yet.
    behind_entries: int | None = None


class RaftMember(msgspec.Struct, frozen=True):
    """One member of a broker group, by its own word; `role` is unreachable if it gave none.

    A learner does not vote yet; `removed` is who runs and belongs to the group no longer (or not
    yet), by the leader's word.
    """

    cluster: str
    broker_name: str
    node_id: str
    address: str
    role: str
    term: int | None = None
    #: Whom it takes for the leader.
    leader_id: str | None = None
    last_index: int | None = None
    commit_index: int | None = None
    applied_index: int | None = None
    #: Log entries that the leader has and this member has not.
    lag_entries: int | None = None
    #: Whether it may be relied upon for a majority, by its own word: not while it fills an emptied
    #: folder, or before the state that its log builds on is saved there.
    counted: bool | None = None
    preferred: bool = False
    #: Why it takes no part any more.
    fenced: str | None = None
    #: Entries of the log that have no effect on any member: no leader should have written them.
    set_aside: int | None = None
    #: (index, reason) of the last ones.
    set_aside_last: tuple[tuple[int, str], ...] = ()
    #: Requests that met a bug of the member's since it started; its log has them.
    faults: int | None = None


class LeaderTransfer(msgspec.Struct, frozen=True):
    """A group's leadership has moved. `waited_s`: until the new leader said that it serves."""

    broker_name: str
    leader_id: str
    address: str
    waited_s: float


class MemberChange(msgspec.Struct, frozen=True):
    """A group has got a voter more, or one less. `members`: their node ids now."""

    broker_name: str
    node_id: str
    members: tuple[str, ...]
    waited_s: float


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic and what it is for: user, retry, dead-letter or system."""

    topic: str
    kind: str


class GroupRoute(msgspec.Struct, frozen=True):
    """What one broker group serves of a topic. `addresses` is by broker id; 0 is the leader."""

    broker_name: str
    cluster: str
    read_queues: int
    write_queues: int
    perm: int
    addresses: Mapping[int, str]


class TopicRoute(msgspec.Struct, frozen=True):
    """Where the queues of a topic are."""

    topic: str
    order_config: str | None
    groups: tuple[GroupRoute, ...]


class QueueStatus(msgspec.Struct, frozen=True):
    """What one queue holds."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int


class TopicStatus(msgspec.Struct, frozen=True):
    """What every queue of a topic holds."""

    topic: str
    messages: int
    queues: tuple[QueueStatus, ...]


class QueueProgress(msgspec.Struct, frozen=True):
    """How far a consumer group is in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    #: Store time of the message that was consumed last.
    last_consumed_ms: int


class GroupProgress(msgspec.Struct, frozen=True):
    """How far a consumer group is. `members` counts the clients that are connected now."""

    group: str
    members: int
    consume_type: str
    message_model: str
    consumed_per_s: float
    lag: int
    queues: tuple[QueueProgress, ...]


class BrokerRuntime(msgspec.Struct, frozen=True):
    """The figures that one broker reports about itself, by RocketMQ's names."""

    broker_name: str
    address: str
    figures: Mapping[str, str]


class ServerConfig(msgspec.Struct, frozen=True):
    """The config of one broker or name server, by RocketMQ's keys."""

    address: str
    config: Mapping[str, str]


class PermChange(msgspec.Struct, frozen=True):
    """What one name server changed: whether a broker group's `topics` topics are writable."""

    broker_name: str
    namesrv: str
    writable: bool
    topics: int


class TopicTraffic(msgspec.Struct, frozen=True):
    """What came into a topic, and what one group of its readers took out of it."""

    topic: str
    #: "" if no group reads the topic.
    group: str
    lag: int
    #: Messages per second over the last minute, and messages of the last day.
    in_per_s: float
    out_per_s: float
    in_24_h: int
    out_24_h: int


class ClientInfo(msgspec.Struct, frozen=True):
    """One client that is connected."""

    client_id: str
    address: str
    language: str
    version: str


class Subscription(msgspec.Struct, frozen=True):
    """What a group reads of a topic."""

    topic: str
    expression: str
    expression_type: str


class ConsumerClients(msgspec.Struct, frozen=True):
    """Who consumes for a group at the moment, and what."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    clients: tuple[ClientInfo, ...]
    subscriptions: tuple[Subscription, ...]


class ProducerClients(msgspec.Struct, frozen=True):
    """Who produces for a group at the moment, on the brokers of a topic."""

    group: str
    topic: str
    clients: tuple[ClientInfo, ...]


class ConsumerStatus(msgspec.Struct, frozen=True):
    """What a consumer says of itself, by RocketMQ's keys; or the reason why it says nothing."""

    client: ClientInfo
    running_info: Mapping[str, object]
    problem: str


class QueueReset(msgspec.Struct, frozen=True):
    """Where a group will go on in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class MessageView(msgspec.Struct, frozen=True):
    """A message, ready to be shown. `body_base64` is there if the body is no UTF-8 text."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    position: int
    message_id: str
    keys: str
    tags: str
    properties: Mapping[str, str]
    born_timestamp_ms: int
    store_timestamp_ms: int
    text: str
    body_base64: str | None
    offset_message_id: str
    born_host: str
    store_host: str
    reconsume_times: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> MessageView:
        """The view of a message that was read."""
        body = message.body
        try:
            text, encoded = body.decode(), None
        except UnicodeDecodeError:
            text, encoded = body.decode(errors="backslashreplace"), b64encode(body).decode()
        return cls(
            topic=message.topic,
            broker_name=message.broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            position=message.position,
            message_id=message.message_id,
            keys=message.keys,
            tags=message.tags,
            properties=message.properties,
            born_timestamp_ms=message.born_timestamp_ms,
            store_timestamp_ms=message.store_timestamp_ms,
            text=text,
            body_base64=encoded,
            offset_message_id=message.offset_message_id,
            born_host=join_address(*host_decode(message.record.born_host)),
            store_host=join_address(*host_decode(message.record.store_host)),
            reconsume_times=message.reconsume_times,
        )
