"""Requests that carry a tag, after both ends have proven: a broker's to a name server, a tool's or
another member's to a broker. Pure.

The proofs travel as two requests of a code of ours, PROVE, on the connection itself. From then on
requests carry a tag in an ext field: over the request's number among those with a tag
on this connection, its code, all other ext fields, by name, and its body. Values count as the text
that headers of all encodings write them as.
"""

from __future__ import annotations

import hashlib
from typing import Final

from dledger.errors import FrameError
from dledger.remoting.command import Command
from dledger.remoting.headers.base import text
from dledger.trust.proof import Door, Field, Session, Tags, encode_fields

VERSION: Final = 1
TAG_FIELD: Final = "dledgerTag"
NAME_SERVER_ID: Final = "name server"
"""All name servers are one to a broker: it tells each of them the same."""


BROKER_ID: Final = "broker"
"""All members of a group are one to whoever proves to them: a follower passes requests on."""


def broker_door(cluster: str, broker_name: str) -> Door:
    """The purpose of a member's or a tool's proof to a broker."""
    return Door("broker", (VERSION, cluster, broker_name))


def name_server_door(cluster: str, broker_name: str) -> Door:
    """The purpose of a broker's proof to a name server."""
    return Door("name server", (VERSION, cluster, broker_name))


class Signing:
    """The end of a connection that signs its requests."""

    def __init__(self, session: Session) -> None:
        self._tags = Tags(session.sending_key)

    def sign(self, command: Command) -> Command:
        """The command with its tag. It must be the next one that is sent."""
        tag = self._tags.next(_signed(command)).hex()
        command.ext = {**command.ext, TAG_FIELD: tag}
        return command


class Verifying:
    """The end of a connection that checks signatures."""

    def __init__(self, session: Session) -> None:
        self._tags = Tags(session.receiving_key)

    def check(self, command: Command) -> None:
        """Raise FrameError unless this is the next command that was signed."""
        self._tags.check(raw_bytes(command.ext.get(TAG_FIELD)), _signed(command))


def raw_bytes(value: object) -> bytes:
    """Bytes that an ext field holds as hexadecimal text; empty for what is none."""
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _signed(command: Command) -> bytes:
    fields: list[Field] = []
    for name, value in sorted(command.ext.items()):
        if name != TAG_FIELD and value is not None:
            shown = text(value)
            if not isinstance(shown, str):
                raise FrameError(f"the field {name[:80]!r} can't be signed: it is not text")
            fields += [name, shown]
    body = hashlib.sha256(command.payload).digest()
    return encode_fields("request", command.code, *fields, body)
