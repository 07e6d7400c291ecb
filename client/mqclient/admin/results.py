"""The results of the administration: plain values, which `mqadmin -o json` prints as they are.

Timestamps are milliseconds since 1970, 0 for never. Offsets count messages of one queue; maximum
offsets are exclusive. Fields are only added, never renamed: programs read them. They are structs
rather than dataclasses since those are slow to define, and a command should start at once.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

import msgspec

from dledger.addresses import join_address
from dledger.remoting.message import (
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    REPEAT_CRON,
    REPEAT_EVERY_MS,
    REPEAT_ZONE,
    REPEATS_LEFT,
    RETRY_TOPIC,
    host_decode,
)
from mqclient.models import ReceivedMessage

END = -1
"""The timestamp that means the end of a queue."""


class BrokerState(msgspec.Struct, frozen=True):
    """A broker process, as the name server and the broker itself describe it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    #: leader, follower or candidate, as it says itself; unreachable if it does not answer.
    role: str
    term: int | None = None
    version: str = ""
    #: Messages per second, over the last ten; None if it does not say.
    in_per_s: float | None = None
    out_per_s: float | None = None
    log_end_bytes: int | None = None
    #: Log entries that it has not applied yet.
    behind_entries: int | None = None


class ExportedReplica(msgspec.Struct, frozen=True):
    """A copy of a replica: `directory` is on its broker's machine.

    It has all that was committed up to the entry `last_index`: the log from `first_position` to
    `end_position`, in so many segments, of which so many are hard links.
    """

    broker_name: str
    node_id: str
    directory: str
    segments: int
    linked: int
    copied_bytes: int
    last_index: int
    first_position: int
    end_position: int


class RaftMember(msgspec.Struct, frozen=True):
    """A member of a broker group, as it describes itself; `role` is unreachable if it does not
    answer.

    A learner does not vote yet. `removed` is a running node that the leader does not count as a
    member, any more or yet.
    """

    cluster: str
    broker_name: str
    node_id: str
    address: str
    role: str
    term: int | None = None
    #: The node that it takes for the leader.
    leader_id: str | None = None
    last_index: int | None = None
    commit_index: int | None = None
    applied_index: int | None = None
    #: Log entries that the leader has and this member lacks.
    lag_entries: int | None = None
    #: Whether it counts for a majority, as it says itself: not while it fills an emptied folder, or
    #: until the state that its log builds on is saved.
    counted: bool | None = None
    preferred: bool = False
    #: Why it no longer takes part.
    fenced: str | None = None
    #: Entries of the log that have no effect on any member: no leader should have written them.
    set_aside: int | None = None
    #: (index, reason) of the last entries that were set aside.
    set_aside_last: tuple[tuple[int, str], ...] = ()
    #: Requests since its start that met a bug of the member; its log has them.
    faults: int | None = None
    #: Why the leader could not dial it last.
    problem: str | None = None


class LeaderTransfer(msgspec.Struct, frozen=True):
    """A group's leadership has moved. `waited_s`: until the new leader said that it serves."""

    broker_name: str
    leader_id: str
    address: str
    waited_s: float


class MemberChange(msgspec.Struct, frozen=True):
    """A group has one voter more, or one less. `members`: the node ids now."""

    broker_name: str
    node_id: str
    members: tuple[str, ...]
    waited_s: float


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic and what it is for: user, retry, dead-letter or system."""

    topic: str
    kind: str


class TopicChange(msgspec.Struct, frozen=True):
    """The broker groups where a topic was made or changed, and, by sentences, messages there that
    no consumer gets any more since it has fewer queues."""

    topic: str
    brokers: tuple[str, ...]
    unreachable: tuple[str, ...] = ()


class GroupRoute(msgspec.Struct, frozen=True):
    """The queues of a topic on one broker group. `addresses` is by broker id; 0 is the leader."""

    broker_name: str
    cluster: str
    read_queues: int
    write_queues: int
    perm: int
    addresses: Mapping[int, str]


class TopicRoute(msgspec.Struct, frozen=True):
    """The places of a topic's queues."""

    topic: str
    order_config: str | None
    groups: tuple[GroupRoute, ...]


class QueueStatus(msgspec.Struct, frozen=True):
    """The offsets of a queue: of its oldest message, and of its next one."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int


class TopicStatus(msgspec.Struct, frozen=True):
    """The offsets of every queue of a topic."""

    topic: str
    messages: int
    queues: tuple[QueueStatus, ...]


class QueueProgress(msgspec.Struct, frozen=True):
    """The progress of a consumer group in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    #: Store time of the message that was consumed last.
    last_consumed_ms: int
    #: Messages that a member has in hand; None if the broker does not tell (RocketMQ's).
    in_flight: int | None = None
    #: Why messages are not done: a word of docs/reference/metrics.md, the same in words, and since
    #: when; 0 if nothing tells.
    state: str = ""
    reason: str = ""
    since_ms: int = 0


class GroupProgress(msgspec.Struct, frozen=True):
    """The progress of a consumer group. `members` counts the clients that are connected now."""

    group: str
    members: int
    consume_type: str
    message_model: str
    consumed_per_s: float
    lag: int
    queues: tuple[QueueProgress, ...]
    #: Messages a second that come into the group's topics; None if the brokers don't tell.
    produced_per_s: float | None = None
    #: Seconds until the lag is gone if both rates of the last minute stay; None if it will not be.
    caught_up_s: float | None = None
    #: Broker groups that could not be asked, and why: what they have is in no other field.
    unasked: Mapping[str, str] = {}


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
    """A change on one name server: whether a broker group's `topics` topics are writable."""

    broker_name: str
    namesrv: str
    writable: bool
    topics: int


class ServerHistory(msgspec.Struct, frozen=True):
    """Figures that one server has kept of its last hour, the oldest first.

    Each row has a value for each of `names`. Names that end with `_total` grow while the server
    runs, and begin at 0 with it.
    """

    address: str
    names: tuple[str, ...]
    times_ms: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]


class SetRate(msgspec.Struct, frozen=True):
    """A rate that an operator has set for one broker group, and what it has held back there."""

    broker_name: str
    #: topic (what may be sent) or group (what it is given).
    kind: str
    name: str
    messages_per_s: int | None
    bytes_per_s: int | None
    #: Requests that came too early, in the last minute and the last day.
    held_back_1_min: int
    held_back_24_h: int


class TopicTraffic(msgspec.Struct, frozen=True):
    """The messages sent to a topic, and those read by one of its groups."""

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
    """A client that is connected to a broker."""

    client_id: str
    address: str
    language: str
    version: str


class Subscription(msgspec.Struct, frozen=True):
    """A group's subscription to a topic."""

    topic: str
    expression: str
    expression_type: str


class ConsumerClients(msgspec.Struct, frozen=True):
    """The connected consumers of a group, and their subscriptions."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    clients: tuple[ClientInfo, ...]
    subscriptions: tuple[Subscription, ...]


class ProducerClients(msgspec.Struct, frozen=True):
    """The connected producers of a group, on the brokers of a topic."""

    group: str
    topic: str
    clients: tuple[ClientInfo, ...]


class ConsumerStatus(msgspec.Struct, frozen=True):
    """The running info of a consumer, by RocketMQ's keys; or why there is none."""

    client: ClientInfo
    running_info: Mapping[str, object]
    problem: str


class QueueReset(msgspec.Struct, frozen=True):
    """The offset from which a group will go on in one queue."""

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


class ScheduledMessage(MessageView, frozen=True, kw_only=True):
    """A message that waits for its time, and the topic that it will arrive in.

    `repeats` is in words how it comes again; "" if it does not.
    """

    due_ms: int
    to_topic: str
    repeats: str = ""

    @classmethod
    def due(cls, message: ReceivedMessage, due_ms: int) -> ScheduledMessage:
        """The view of one that was read."""
        shown = msgspec.structs.asdict(MessageView.of(message))
        to_topic = message.properties.get(REAL_TOPIC, message.topic)
        repeats = _repeats(message.properties)
        return cls(**shown, due_ms=due_ms, to_topic=to_topic, repeats=repeats)


def _repeats(properties: Mapping[str, str]) -> str:
    """How a message comes again, in words."""
    every, cron = properties.get(REPEAT_EVERY_MS, ""), properties.get(REPEAT_CRON, "")
    if cron:
        words = f"{cron} {properties.get(REPEAT_ZONE, 'UTC')}"
    elif every.isdigit():
        words = f"every {int(every) / 1000:g} s"
    else:
        return ""
    left = properties.get(REPEATS_LEFT)
    return words if left is None else f"{words}, {left} left"


class DeadLetter(MessageView, frozen=True, kw_only=True):
    """A message that a group gave up, and where it came from; "" if it does not say.

    `redriven_as` is the offset message id of its copy, once it was sent again; `problem` says why
    it could not be.
    """

    origin_topic: str
    origin_message_id: str
    redriven_as: str = ""
    problem: str = ""

    @classmethod
    def of(cls, message: ReceivedMessage) -> DeadLetter:
        """The view of one that was read."""
        shown = msgspec.structs.asdict(MessageView.of(message))
        properties = message.properties
        origin = properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC, "")
        first = properties.get(ORIGIN_MESSAGE_ID, "")
        return cls(**shown, origin_topic=origin, origin_message_id=first)

    def sent(self, message_id: str) -> DeadLetter:
        """A copy of this dead letter, sent again as `message_id`."""
        return msgspec.structs.replace(self, redriven_as=message_id)

    def unsent(self, problem: Exception) -> DeadLetter:
        """A copy of this dead letter, which can't be sent again for this reason."""
        return msgspec.structs.replace(self, problem=str(problem))
