"""SET_MESSAGE_REQUEST_MODE (401): whether a group's members pull a topic, or pop it.

Only members that let the broker share the queues out ask for it (QUERY_ASSIGNMENT).
"""

from __future__ import annotations

from dledger.net import Connection
from dledger.remoting.bodies import SetMessageRequestModeBody, decode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.message import RETRY_PREFIX
from mqbroker import limits
from mqbroker.refusal import busy, invalid, no_permission
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.needs import changes
from mqbroker.state.control import REQUEST_MODES, PutRequestMode
from mqbroker.state.groups.modes import RequestMode


class RequestModeHandler:
    """Answers SET_MESSAGE_REQUEST_MODE once the mode is applied."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @changes(RequestCode.SET_MESSAGE_REQUEST_MODE, rights=rights.REQUEST_MODE)
    async def put(self, request: Command, _: Connection) -> Command:
        """Set the mode, for all members from their next question on."""
        body = decode_body(SetMessageRequestModeBody, request.payload)
        if body.topic.startswith(RETRY_PREFIX):
            raise no_permission(
                f"{body.topic!r} is a retry topic: retry topics are pulled, not popped"
            )
        if body.mode not in REQUEST_MODES:
            raise invalid(
                f"the mode {body.mode[:80]!r} is not one of {', '.join(sorted(REQUEST_MODES))}"
            )
        definitions, modes = self._core.definitions, self._core.machine.modes
        definitions.topic(body.topic)
        definitions.ensure_group(body.consumer_group)
        definitions.group(body.consumer_group)
        known = modes.get(body.topic, body.consumer_group)
        if len(modes) >= limits.REQUEST_MODES_MAX and known is None:
            raise busy(f"{len(modes)} request modes are kept")
        share = body.pop_share_queue_num
        if share is None:
            share = (known or RequestMode()).share
        change = PutRequestMode(body.topic, body.consumer_group, body.mode, share)
        await definitions.changed(change)
        return request.reply()
