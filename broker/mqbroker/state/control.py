"""Control entries: the changes to the replicated state that are not messages. Pure.

The body of an entry of kind CONTROL is msgpack, ``[operation, arguments]``: a name and a map. All
that an operation needs is in its arguments, the leader's clock too, so that applying it is the
same on every replica and at every restart. A replica that does not know an operation is older than
its leader: it must stop, or its state would differ from the others'. Any other entry that can't be
applied is set aside (see `mqbroker.state.aside`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias, get_args

import msgspec

from dledger.buffers import Buffer
from dledger.errors import BadInput, WrittenByNewer
from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from dledger.remoting.numbers import INT32_MAX, INT32_MIN
from dledger.trust.users import User
from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.groups.popping import PopMessages, SettlePopped, check_pop, check_settling
from mqbroker.state.rows import other_versions


class PutTopics(msgspec.Struct, frozen=True):
    """Make topics, or change their configs."""

    topics: list[TopicConfig]
    now_ms: int


class DeleteTopic(msgspec.Struct, frozen=True):
    """Remove a topic with its queues, locks, and every group's offsets in it, atomically."""

    topic: str
    now_ms: int


class PutGroups(msgspec.Struct, frozen=True):
    """Make subscription groups, or change their configs.

    `begins`: their first consumers have come; None, of older versions, says the same.
    """

    groups: list[SubscriptionGroupConfig]
    now_ms: int
    begins: bool | None = None


class DeleteGroup(msgspec.Struct, frozen=True):
    """Remove a subscription group with its locks and, if asked for, its consumer offsets."""

    group: str
    with_offsets: bool
    now_ms: int


class PutSettings(msgspec.Struct, frozen=True):
    """Change config keys of all replicas, as text; an empty text restores the config file's
    value."""

    settings: dict[str, str]
    now_ms: int


class CommitOffsets(msgspec.Struct, frozen=True):
    """Set consumer offsets: (group, topic, queue id, offset), in order."""

    offsets: list[tuple[str, str, int, int]]


class LockQueues(msgspec.Struct, frozen=True):
    """Lock or renew queues (topic, queue id) for one client of a group."""

    group: str
    client_id: str
    queues: list[tuple[str, int]]
    now_ms: int


class UnlockQueues(msgspec.Struct, frozen=True):
    """Give up the locks that a client of a group holds on queues (topic, queue id)."""

    group: str
    client_id: str
    queues: list[tuple[str, int]]


class PutRequestMode(msgspec.Struct, frozen=True):
    """How a group's members read a topic if they let the broker share its queues out."""

    topic: str
    group: str
    mode: str
    share: int


class RegisterProducer(msgspec.Struct, frozen=True):
    """Give a producer's name to the instance that asks for it."""

    name: str
    instance: str
    now_ms: int


class ClaimProducer(msgspec.Struct, frozen=True):
    """Give a producer's name to an instance of a user. With `over` the name may be another user's,
    and stays so."""

    name: str
    instance: str
    user: str
    over: bool
    now_ms: int


class ForgetProducers(msgspec.Struct, frozen=True):
    """Make room for other names: of these, forget those that have written nothing."""

    names: list[str]
    now_ms: int


class PutUser(msgspec.Struct, frozen=True):
    """Make a user, or replace all that is known of one."""

    user: User
    now_ms: int


class DeleteUser(msgspec.Struct, frozen=True):
    """Remove a user, and what that one may do."""

    name: str
    now_ms: int


class DropHead(msgspec.Struct, frozen=True):
    """Drop all messages before `position`, where the segment that begins with entry `index`
    starts."""

    position: int
    index: int


Control: TypeAlias = (
    PutTopics
    | DeleteTopic
    | PutGroups
    | DeleteGroup
    | PutSettings
    | CommitOffsets
    | LockQueues
    | UnlockQueues
    | PopMessages
    | SettlePopped
    | PutRequestMode
    | RegisterProducer
    | ClaimProducer
    | ForgetProducers
    | PutUser
    | DeleteUser
    | DropHead
)

#: By the names in the log, which are those of their classes: `put_topics` for PutTopics. A class
#: that is in a log must keep its name.
_OPERATIONS: Final[Mapping[str, type[Control]]] = {
    re.sub("(?<!^)([A-Z])", r"_\1", operation.__name__).lower(): operation
    for operation in get_args(Control)
}
REQUEST_MODES: Final = frozenset({"PULL", "POP"})
_NAME: Final = re.compile("[a-z][a-z_]{0,63}")
_NAMES: Final = {operation: name for name, operation in _OPERATIONS.items()}


def encode_control(control: Control) -> bytes:
    """The body of a control entry. BadInput for what it can't hold."""
    try:
        return msgspec.msgpack.encode((_NAMES[type(control)], control))
    except (OverflowError, UnicodeEncodeError) as error:
        raise BadInput(f"the log can't hold this {_NAMES[type(control)]}: {error}") from error


def decode_control(body: Buffer) -> Control:
    """The operation that `encode_control` wrote.

    Raises WrittenByNewer for an operation that this version does not know, Unusable for bytes that
    are no operation.
    """
    try:
        name, arguments = msgspec.msgpack.decode(body, type=tuple[str, msgspec.Raw])
        operation = _OPERATIONS.get(name)
        if operation is not None:
            return other_versions.decode(arguments, operation)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable("it is no control entry that can be read") from error
    if not _NAME.fullmatch(name):
        raise Unusable("it is a control entry without the name of an operation")
    raise WrittenByNewer(f"an operation {name!r}")


def check_control(control: Control, position: int, index: int) -> None:
    """Raise Unusable for content that no leader writes into the entry at `index`, `position`."""
    now_ms = getattr(control, "now_ms", 0)
    if not 0 <= now_ms <= limits.TIME_MS_MAX:
        raise Unusable(f"it was written at {now_ms} ms, which is no time")
    match control:
        case PutTopics(topics):
            for topic in topics:
                counts = topic.read_queue_nums, topic.write_queue_nums
                if not 0 < min(counts) <= max(counts) <= limits.QUEUES_IN_STATE_MAX:
                    raise Unusable(f"it gives {topic.topic_name!r} {counts} queues")
        case PopMessages():
            check_pop(control)
        case SettlePopped():
            check_settling(control)
        case PutRequestMode(_, _, mode, share):
            if mode not in REQUEST_MODES or not INT32_MIN <= share <= INT32_MAX:
                raise Unusable(f"it has messages read by {mode[:80]!r}, shared by {share}")
        case DropHead(head_position, head_index):
            if not (0 <= head_position <= position and 0 < head_index <= index):
                raise Unusable(f"it has the log begin at {head_position}, entry {head_index}")
