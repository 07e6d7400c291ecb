"""Headers about clients and broker groups: who consumes, and who leads.

HEART_BEAT, LOCK_BATCH_MQ and UNLOCK_BATCH_MQ have no header; their JSON bodies are in
`dledger.remoting.bodies`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int64, Port


class UnregisterClientHeader(Header, frozen=True):
    """UNREGISTER_CLIENT (35): the client leaves the groups named."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupHeader(Header, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedHeader(Header, frozen=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), one-way, from the broker to every member of the group."""

    consumer_group: str


class ResetConsumerClientOffsetHeader(Header, frozen=True):
    """RESET_CONSUMER_CLIENT_OFFSET (220), one-way, from the broker to members. The body has the
    offsets.

    `timestamp` in ms is the time for which they were searched; -1 means the end.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool


class GetConsumerStatusFromClientHeader(Header, frozen=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221), from the broker to a member."""

    topic: str
    group: str


class InvokeBrokerToGetConsumerStatusHeader(Header, frozen=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223). `client_addr` may name one client by its id."""

    topic: str
    group: str
    client_addr: str | None = None


class ConsumeMessageDirectlyHeader(Header, frozen=True):
    """CONSUME_MESSAGE_DIRECTLY (309): `msg_id` is an offset message id."""

    consumer_group: str
    client_id: str
    msg_id: str


class GroupInfoHeader(Header, frozen=True):
    """GROUP_INFO (9002): ask any member of a broker group for the group's state."""


class GroupInfoResponseHeader(Header, frozen=True):
    """The state of the broker group as one member sees it. Followers answer too.

    `role` is "leader" only once the node serves, that is, has applied its own no-op. `members` are
    (node id, "host:port" of the port for clients); `learners` are the members that do not vote yet.
    Indexes count log entries from 1; `end_position` is the byte position after the last entry.
    `fenced` is the reason why this member no longer takes part. A member that is not `counted`, as
    it says itself, copies the log and does not count for a majority yet. `set_aside` counts entries
    that no member can apply; `set_aside_last` has the last of them as (index, reason). `faults`
    counts requests that met a bug of the member. `unreached` are members to which its last try to
    connect failed, each with the reason.
    """

    broker_name: str
    cluster: str
    node_id: str
    role: Literal["leader", "follower", "candidate"]
    term: Int64
    members: list[tuple[str, str]]
    last_index: Int64
    commit_index: Int64
    applied_index: Int64
    end_position: Int64
    counted: bool
    leader_id: str | None = None
    leader_addr: str | None = None
    preferred_leader_id: str | None = None
    fenced: str | None = None
    learners: tuple[str, ...] = ()
    set_aside: Int64 | None = None
    set_aside_last: tuple[tuple[Int64, str], ...] = ()
    faults: Int64 | None = None
    unreached: tuple[tuple[str, str], ...] = ()


class TransferLeaderHeader(Header, frozen=True):
    """TRANSFER_LEADER (9003), to the leader. Without `node_id` the leader chooses the member that
    has most of its log."""

    node_id: str | None = None


class TransferLeaderResponseHeader(Header, frozen=True):
    """The answer to TRANSFER_LEADER: the new leader, which may not serve yet."""

    leader_id: str


class AddMemberHeader(Header, frozen=True):
    """ADD_MEMBER (9004), to the leader: a node with its two ports, for members and for clients.

    The answer comes when it is committed that the node is a learner, or if it is a member already.
    The node becomes a voter by itself: GROUP_INFO shows that. `client_addr` is "host:port".
    """

    node_id: str
    host: str
    port: Port
    client_addr: str


class RemoveMemberHeader(Header, frozen=True):
    """REMOVE_MEMBER (9005), to the leader. The answer comes when the removal is committed.

    If the leader itself is to be removed, it hands over and refuses: ask the next leader.
    """

    node_id: str


class ExportReplicaHeader(Header, frozen=True):
    """EXPORT_REPLICA (9007), to any member: copy its replica to a place below its `exportDir`.

    The answer comes at once. A repeat with the same `export_id` asks how far that copy is.
    """

    to: str
    export_id: str


class ExportReplicaResponseHeader(Header, frozen=True):
    """The answer to EXPORT_REPLICA: how far a copy is. `directory` is its place on the member's
    machine.

    The copy will hold all entries that were committed up to `last_index`, from `first_position` to
    `end_position` of the log.
    """

    node_id: str
    directory: str
    is_done: bool
    segments: Int64
    segments_done: Int64
    linked: Int64
    copied_bytes: Int64
    last_index: Int64
    first_position: Int64
    end_position: Int64
