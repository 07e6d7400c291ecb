"""Takes back a delayed message, by the handle from the answer to its send."""

from __future__ import annotations

from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import RecallMessageHeader, encode_header
from mqclient.connection.session import Session
from mqclient.errors import BadMessage, RecallTooLate, Refused
from mqclient.models import SendResult


async def recall(session: Session, producer_group: str, sent: SendResult, timeout_s: float) -> None:
    """Have the leader drop the message; see `Producer.recall`."""
    if not sent.recall_handle:
        raise BadMessage(
            f"message {sent.message_id} can't be taken back: it was sent without delay_s and "
            "deliver_at, or its time had come"
        )
    header = RecallMessageHeader(
        topic=sent.topic, recall_handle=sent.recall_handle, producer_group=producer_group
    )
    command = Command(RequestCode.RECALL_MESSAGE, encode_header(header))
    answer = await session.finder.ask(sent.broker_name, command, timeout_s, sent.topic)
    if answer.code != ResponseCode.SUCCESS:
        what = f"the recall of message {sent.message_id}"
        late = answer.code == ResponseCode.ILLEGAL_OPERATION
        error_type = RecallTooLate if late else Refused
        raise error_type(what, sent.broker_name, answer.code, answer.remark)
