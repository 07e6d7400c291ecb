"""Takes back a delayed message, by the handle from the answer to its send."""

from __future__ import annotations

from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import RecallMessageHeader, encode_header
from dledger.remoting.receipts import RecallHandle
from mqclient.connection.session import Session
from mqclient.errors import BadMessage, RecallTooLate, Refused
from mqclient.models import SendResult


def handle_of(sent: SendResult | str, handle: str | None) -> RecallHandle:
    """The handle of a message to take back: from a send's result, or a topic and the handle of a
    result.

    Raises BadInput if there is none, or it is of another topic.
    """
    if isinstance(sent, SendResult) and handle is None:
        if not sent.recall_handle:
            raise BadMessage(
                f"message {sent.message_id} can't be taken back: it was sent without delay_s and "
                "deliver_at, or its time had come"
            )
        return RecallHandle.decode(sent.recall_handle)
    if isinstance(sent, SendResult) or handle is None:
        raise BadMessage(
            f"recall({sent!r}, {handle!r}): give the SendResult of the message, or its topic and "
            "that result's recall_handle"
        )
    named = RecallHandle.decode(handle)
    if named.topic != sent:
        raise BadMessage(f"the recall handle is of a message to {named.topic!r}, not to {sent!r}")
    return named


async def recall(
    session: Session, producer_group: str, handle: RecallHandle, timeout_s: float
) -> None:
    """Ask the leader to drop the message; see `Producer.recall`."""
    topic = handle.topic
    header = RecallMessageHeader(
        topic=topic, recall_handle=handle.encode(), producer_group=producer_group
    )
    command = Command(RequestCode.RECALL_MESSAGE, encode_header(header))
    if not session.routes.members(handle.broker_name):  # the message was sent by another program
        await session.route_within(topic, "recall from", timeout_s)
    answer = await session.finder.ask(handle.broker_name, command, timeout_s, topic)
    if answer.code != ResponseCode.SUCCESS:
        what = f"the recall of message {handle.unique_key}"
        late = answer.code == ResponseCode.ILLEGAL_OPERATION
        error_type = RecallTooLate if late else Refused
        raise error_type(what, handle.broker_name, answer.code, answer.remark)
