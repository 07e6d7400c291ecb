"""The methods that answer codes. A handler declares its codes at the method, with what it needs,
and who may ask.

::

    class Lookups:
        @serves(
            RequestCode.GET_MAX_OFFSET,
            needs=Needs.CONFIRMED,
            right=Right.ANYONE,
            rights=topic(GET, SUB),
        )
        def max_offset(self, request: Command, connection: Connection) -> Command: ...

    table = table_of([Lookups()])

Each server has its own enum of needs; one that answers whatever state it is in needs nothing but a
`Right`. That says who may ask while there are no users, `rights` (`dledger.trust.rights`) what a
user needs. A code without both can't be declared. The decorator does not change the method. The
dispatcher looks codes up in the table; docs and tests of a server use the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.trust.rights import Rights

if TYPE_CHECKING:
    from dledger.net.connection import Connection

Answer: TypeAlias = "Command | Awaitable[Command | None] | None"
"""The result of a dispatcher; its handlers may return more kinds."""
HandlerT = TypeVar("HandlerT")
AnswerT = TypeVar("AnswerT")
NeedsT = TypeVar("NeedsT", bound=Enum)
_DECLARED = "declared_codes"


class Right(Enum):
    """The right that a request needs. The values are shown in docs/reference/compatibility.md."""

    ANYONE = "anyone"
    """Requests of a client for its own work, and requests that only read and tell no secret."""
    BROKER = "brokers"
    """Requests of brokers to a name server; its door decides which brokers it believes."""
    ADMIN = "`adminAddresses`"
    """Requests that change others' work: members, leaders, settings, topics, groups, others'
    offsets."""


class Declared(NamedTuple):
    """The declaration of a method for its codes."""

    codes: tuple[RequestCode, ...]
    needs: Enum
    right: Right
    rights: Rights


class Served(NamedTuple, Generic[NeedsT]):
    """The method that answers a code, what it needs, and who may ask."""

    method: Callable[[Command, Connection], Any]
    needs: NeedsT
    right: Right
    rights: Rights


def serves(
    *codes: RequestCode, needs: Enum, rights: Rights, right: Right | None = None
) -> Callable[
    [Callable[[HandlerT, Command, Connection], AnswerT]],
    Callable[[HandlerT, Command, Connection], AnswerT],
]:
    """Declare that a handler's method answers these codes. `right` may be what it needs."""
    allowed = right or needs
    if not isinstance(allowed, Right):
        raise TypeError(f"{codes} are declared without a right: say who may ask")

    def declare(
        method: Callable[[HandlerT, Command, Connection], AnswerT],
    ) -> Callable[[HandlerT, Command, Connection], AnswerT]:
        vars(method)[_DECLARED] = Declared(codes, needs, allowed, rights)
        return method

    return declare


def declared_by(handler: type) -> Iterator[tuple[str, RequestCode, Declared]]:
    """The declarations of a handler's class: (the method's name, a code, its declaration)."""
    for name, method in vars(handler).items():
        declared: Declared | None = getattr(method, _DECLARED, None)
        if declared is not None:
            for code in declared.codes:
                yield name, code, declared


def table_of(handlers: Iterable[object], needs: type[NeedsT]) -> dict[int, Served[NeedsT]]:
    """The methods of handlers, by code. Raises ValueError for a code that two of them serve."""
    table: dict[int, Served[NeedsT]] = {}
    for handler in handlers:
        for name, code, said in declared_by(type(handler)):
            if code in table:
                raise ValueError(f"{code.name} is served by {name} and by {table[code].method}")
            method = getattr(handler, name)
            table[code] = Served(method, needs(said.needs), said.right, said.rights)
    return table
