"""A command of RocketMQ's Remoting protocol: a request, a one-way request or a response.

A command is what both ends of a connection exchange, whatever encoding its header has on the wire.
Requests and responses are matched by `opaque` alone; the two directions of a connection number
their requests independently. Layout and field meanings: RocketMQ's RemotingCommand.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import astuple

from dledger.buffers import Buffer
from dledger.errors import shortened
from dledger.limits import REMARK_CHARACTERS_MAX

ExtValue: TypeAlias = "str | int | float | bool | bytes | list[ExtValue] | None"
#: A tuple is sent piece by piece, without joining: raw log bytes travel uncopied.
Body: TypeAlias = Buffer | tuple[Buffer, ...]

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2


class HeaderEncoding(IntEnum):
    """How a frame's header is encoded: the top byte of its second word."""

    JSON = 0
    ROCKETMQ = 1
    MSGPACK = 2


class Language(IntEnum):
    """Client languages by RocketMQ's LanguageCode ordinals, as commands carry them."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class Command(msgspec.Struct, eq=False):  # noqa: PLW1641 -- it changes, so it has no hash
    """A request or a response. `ext` is the typed header, flattened; unknown fields stay in it."""

    code: int
    ext: Mapping[str, ExtValue] = msgspec.field(default_factory=dict)
    body: Body = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: Language | None = Language.PYTHON
    version: int = 409
    encoding: HeaderEncoding = HeaderEncoding.MSGPACK
    #: The size of the frame that the command was decoded from; 0 if it was not.
    size_bytes: int = 0
    #: When a server began with it, by its monotonic clock, and whether it was held since.
    arrived_s: float = 0.0
    held: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, whatever frames they came in."""
        return isinstance(other, Command) and astuple(self)[:-3] == astuple(other)[:-3]

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no answer. Such a request must never be answered."""
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def payload(self) -> Buffer:
        """The body in one piece. A decoded frame's is one already; nothing is copied then."""
        return b"".join(self.body) if isinstance(self.body, tuple) else self.body

    def reply(
        self,
        code: int = 0,
        ext: Mapping[str, ExtValue] | None = None,
        body: Body = b"",
        remark: str | None = None,
    ) -> Command:
        """The response to this request: same opaque, same header encoding. That to a one-way
        request is marked as such: it ends the request, and is not sent. A remark may quote what the
        client sent, and is cut."""
        if remark is not None and len(remark) > REMARK_CHARACTERS_MAX:
            remark = shortened(remark)
        return Command(
            code=code,
            ext={} if ext is None else ext,
            body=body,
            remark=remark,
            opaque=self.opaque,
            flag=FLAG_RESPONSE | self.flag & FLAG_ONEWAY,
            encoding=self.encoding,
        )
