"""Every error of the client itself, as one tree.

::

    DledgerError
    +-- ClientError
        +-- NoRoute              no name server knows a usable queue for the topic
        +-- NoLeader             a broker group has no leader that can be reached
        +-- Refused              a server answered with an error code
        |   +-- RecallTooLate    a delayed message was delivered or taken back already
        +-- NoReply              nobody replied to a request within its deadline
        +-- SendError            a message was not acknowledged
        |   +-- SendFailed       definitely not stored
        |   |   +-- ProducerFenced   a newer instance has this producer's name
        |   +-- SendUnknown      stored or not: no answer came inside the deadline
        |   +-- ManyFailed       some of many messages were not (`producing.chunks.many`)
        |   +-- BufferFull       not even accepted: the producer holds as much as it may
        +-- TransactionUnknown   a commit or rollback was not answered inside the deadline
        +-- TransactionEnded     a transaction had ended in the other way already
        +-- OffsetsMoved         others have processed a transaction's messages: nothing was stored
        +-- TransactionUnanswered  outputs and offsets are stored, or neither: nobody said which
        +-- AcrossGroups         what a transaction is about lies in several broker groups
        +-- BatchLost            nobody can say whether a batch of a query was stored
        +-- HomeUnsure           nobody can say which broker group decides a query's batches
        +-- TransactionClosed    a transaction was used after its block
        +-- BadMessage           the message can't be stored as it is (also a BadInput)
        +-- NotAssigned          the queue does not belong to this consumer at the moment
        +-- SubscriptionConflict the group's other members subscribe to something else
        +-- Undecodable          a body can't be read by the consumer's `decode`
        +-- HandlerTimeout       a handler took longer for a message than it may
        +-- TooMuchUncommitted   a consumer finishes nothing of what it is given
        +-- ClientClosed         used outside its `async with` block

`definite` says whether the operation certainly had no effect. A message that failed definitely may
be sent again without risk of a second copy. One of unknown outcome may be stored. If it is sent
again, brokers recognise it for a while, but only if it was sent alone both times
(`send(alone=True)`).
"""

from __future__ import annotations

from dledger.errors import BadInput, DledgerError
from dledger.remoting.json_dialect import MessageQueue


class ClientError(DledgerError):
    """Root of the client's own errors."""


class PartlyDone(ClientError):
    """A change was made on some servers and not on others; the message names both."""


class NoRoute(ClientError):
    """No name server knows a queue of this topic that can be used."""

    def __init__(self, topic: str, purpose: str, reason: str, advice: str = "") -> None:
        usual = (
            f"Create the topic (mqadmin updateTopic -t {topic} ...), switch autoCreateTopicEnable "
            "on, or check that the brokers are registered with these name servers "
            "(mqadmin clusterList)"
        )
        super().__init__(f"no route to {purpose} topic {topic!r}: {reason}. {advice or usual}")
        self.topic = topic


def not_writable(topic: str) -> NoRoute:
    """The error for a topic that may be read, and not written to, wherever it is."""
    advice = (
        f"Allow it: `mqadmin updateTopic -t {topic} -p 6`, or addWritePerm for a broker group "
        "after wipeWritePerm (`mqadmin topicRoute` shows both)"
    )
    return NoRoute(topic, "publish to", "its route has no writable queue", advice)


class NoLeader(ClientError):
    """A broker group has no leader that can be reached, for the whole of the caller's deadline."""

    def __init__(self, broker_name: str, asked: tuple[str, ...], waited_s: float) -> None:
        super().__init__(
            f"broker group {broker_name!r} showed no leader for {waited_s:.2f} s; asked "
            f"{', '.join(asked) or 'nobody: no address is known'}. More than half of its nodes "
            "must be up and reach each other"
        )
        self.broker_name = broker_name


class Refused(ClientError):
    """A server answered with an error code: `code` is RocketMQ's, `remark` the server's words."""

    def __init__(self, what: str, address: str, code: int, remark: str | None) -> None:
        super().__init__(
            f"{what} was refused by {address} with code {code}: {remark or 'no reason'}"
        )
        self.address = address
        self.code = code
        self.remark = remark


class RecallTooLate(Refused):
    """A delayed message can't be taken back, since it was delivered or taken back already."""


class NoReply(ClientError):
    """Nobody replied to a request in time. It was stored, and may yet be handled."""

    definite = False

    def __init__(self, topic: str, message_id: str, waited_s: float) -> None:
        super().__init__(
            f"no reply to message {message_id} to topic {topic!r} within {waited_s:.2f} s: is a "
            "consumer running that replies, and does it read this message?"
        )
        self.topic = topic
        self.message_id = message_id


class SendError(ClientError):
    """A message was not acknowledged. `unique_key` names it, `broker_name` its destination."""

    def __init__(self, reason: str, topic: str, broker_name: str, unique_key: str) -> None:
        super().__init__(
            f"{reason} (topic {topic!r}, broker group {broker_name or 'not chosen'!r}, "
            f"message {unique_key})"
        )
        self.reason = reason
        self.topic = topic
        self.broker_name = broker_name
        self.unique_key = unique_key


class SendFailed(SendError):
    """The message is definitely not stored: it was never sent, or every server that got it
    refused."""


class SendUnknown(SendError):
    """The message may or may not be stored: a server that got it did not answer in time."""

    definite = False


class BufferFull(SendError):
    """The message was not accepted: the producer holds as many unacknowledged messages as it
    may."""


class BadMessage(ClientError, BadInput):
    """A message that no broker could store as it is; the text names the field and the bound."""


class TransactionUnknown(ClientError):
    """The outcome of a transaction's end is unknown. If not, the broker asks the
    checker."""

    definite = False

    def __init__(self, topic: str, unique_key: str, decision: str, reason: str) -> None:
        super().__init__(
            f"the {decision} of transaction {unique_key} (topic {topic!r}) was not answered: "
            f"{reason}. If it was not heard, the checker is asked"
        )
        self.topic = topic
        self.unique_key = unique_key


class TransactionEnded(ClientError):
    """A transaction had ended already, with the other outcome: a checker answered before."""

    def __init__(self, topic: str, unique_key: str, *, committed: bool) -> None:
        how = (
            "committed"
            if committed
            else "rolled back, or moved to TRANS_CHECK_MAX_TIME_TOPIC after too many checks"
        )
        super().__init__(
            f"transaction {unique_key} (topic {topic!r}) was {how} before: a checker of its "
            "producer group was asked meanwhile, or the work took longer than its transaction lived"
        )
        self.topic = topic
        self.unique_key = unique_key
        self.committed = committed


class ProducerFenced(SendFailed):
    """A newer instance has the producer's name: this instance can't store anything any more.

    Sends that were not answered before may be stored: they end as SendUnknown, or
    TransactionUnanswered.
    """


class OffsetsMoved(ClientError):
    """A transaction began at an offset other than the group's: another member has processed its
    messages.

    Nothing was stored. The consumer goes on at the group's offset.
    """

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f"the transaction of group {group!r} came too late: {reason}")
        self.group = group


class TransactionUnanswered(ClientError):
    """Outputs and offsets of a transaction are stored, or neither; no answer came in time.

    The consumer goes on at the group's offset, so stored messages are not processed again.
    """

    definite = False

    def __init__(self, producer_name: str, broker_name: str, reason: str) -> None:
        super().__init__(
            f"the transaction of producer {producer_name!r} was not answered by broker group "
            f"{broker_name!r}: {reason}. Go on: messages whose outputs are not stored come again"
        )
        self.broker_name = broker_name


class AcrossGroups(ClientError):
    """Messages or outputs of a transaction lie in several broker groups. Nothing was stored."""


class TransactionClosed(ClientError):
    """The transaction was used after its block was left."""


class NotAssigned(ClientError):
    """The queue does not belong to this consumer now; a rebalance may have moved it."""


class SubscriptionConflict(ClientError):
    """Other members of the group have different subscriptions, or share queues by another
    strategy."""

    def __init__(self, group: str, differences: str) -> None:
        super().__init__(
            f"refused as a member of group {group!r}: {differences}. A queue goes to one member, "
            "whatever it wants of the topic, so messages would be lost in silence. Give this "
            "consumer a group of its own, stop the others first, or take the risk with "
            "same_subscriptions=False"
        )
        self.group = group


class Undecodable(ClientError):
    """A message's body can't be read by the consumer's `decode`; the cause is the exception of
    `decode`."""

    def __init__(self, queue: MessageQueue, offset: int, cause: Exception) -> None:
        super().__init__(
            f"the body of message {offset} of {queue} can't be decoded: {cause!r}. Its producer "
            "encodes otherwise, or has sent something else"
        )
        self.queue = queue
        self.offset = offset


class HandlerTimeout(ClientError):
    """A handler took longer for a message than it may, and was cancelled."""

    definite = False

    def __init__(self, queue: MessageQueue, offset: int, timeout_s: float) -> None:
        super().__init__(
            f"the handler was not through with message {offset} of {queue} after {timeout_s} s: "
            "make it faster, or give it a longer timeout_s"
        )
        self.queue = queue
        self.offset = offset


class TooMuchUncommitted(ClientError):
    """More separate runs of a queue are in hand than the client keeps account of."""

    def __init__(self, queue: MessageQueue, runs: int) -> None:
        super().__init__(
            f"{runs} runs of {queue} were handed out and neither committed nor sent back: "
            "with auto_commit=False, commit() what was processed, or commit(message) one by one"
        )
        self.queue = queue


class BatchLost(ClientError):
    """Nobody can say whether a batch of a query was stored, or whether all of it was."""

    definite = False

    def __init__(self, name: str, batch: int, reason: str) -> None:
        super().__init__(f"batch {batch} of {name!r} is not stored now: {reason}")
        self.batch = batch


class HomeUnsure(ClientError):
    """Nobody can say which broker group decides the batches of a query, and nothing was stored."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"batches of {name!r} can't be decided now: {reason}")


class ClientClosed(ClientError):
    """The client was used before its `async with` was entered or after it was left."""
