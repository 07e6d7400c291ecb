"""Notices that brokers send to the members of a group, or pass on from a tool. Pure.

==== ==================================== ====================================================
code from the broker                      what a member does
==== ==================================== ====================================================
40   the group's members changed          shares the queues out again; with POP nothing
220  the group was reset                  drops what it has fetched, and reads from the new offset
221  how far is it?                       tells its positions
307  what does it do?                     tells its queues and settings
309  handle this message                  refuses: see `refused`
==== ==================================== ====================================================

39 and 326 are for producers: the end of a transaction, and the reply to a request.
"""

from __future__ import annotations

from collections.abc import Mapping

from dledger.remoting.bodies import (
    ConsumerStatusFromClientBody,
    Dialect,
    ResetOffsetBody,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ResetConsumerClientOffsetHeader, decode_header
from dledger.remoting.json_dialect import MessageQueue
from mqclient.connection.answers import checked_offset


def new_offsets(notice: Command, group: str | None) -> dict[MessageQueue, int]:
    """Where a group is to go on, by queue; empty if the notice is for another group.

    Raises BadInput for what is no such notice.
    """
    header = decode_header(ResetConsumerClientOffsetHeader, notice)
    if header.group != group:
        return {}
    table = decode_body(ResetOffsetBody, notice.payload).offset_table
    return {
        queue: checked_offset(offset, f"the new offset of {queue}")
        for queue, offset in table.items()
        if queue.topic == header.topic
    }


def positions_reply(question: Command, positions: Mapping[MessageQueue, int]) -> Command:
    """The answer to how far a member is (`mqadmin getConsumerStatus`)."""
    body = ConsumerStatusFromClientBody(dict(positions))
    return question.reply(body=encode_body(body, Dialect.LOOSE))


def refused(question: Command) -> Command | None:
    """The answer to what a member does not do; None for what is no such request."""
    if question.code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
        return None
    return question.reply(
        ResponseCode.SYSTEM_ERROR,
        remark="this client handles a message when its group is given it, and not by order of a "
        "tool: send it to its topic again (mqadmin sendMessage, redriveDeadLetters)",
    )
