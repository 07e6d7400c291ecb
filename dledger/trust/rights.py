"""The needs of a request: actions on resources, declared beside each request code. Pure.

A *need* is a resource and actions, of which one is enough. A request must have each of its needs
met; where a need has alternatives, one of them is enough. Kinds of resources and actions have the
names of RocketMQ's ACL 2.0.

A handler declares the needs of its codes as :class:`Rights`, from the request's fields
(`topic(Action.PUB)`), its body, or what is stored (`Look`): the topic of a message that a request
names by its position. So all is decided before the handler runs.

Topics of the broker's own making belong to somebody: `%RETRY%g` to the group g, `%PARTS%t` to the
topic t, `%DLQ%g` to the group g as well as to whom its name is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from dledger.remoting.command import Command
from dledger.remoting.headers.base import text
from dledger.remoting.message import DLQ_PREFIX, PARTS_PREFIX, RETRY_PREFIX
from dledger.remoting.names import TOOLS_GROUP, TRACE_TOPIC


class Kind(StrEnum):
    """Kinds of resources in policies. No policy can name a user: a user may do what takes no more
    than to be that one."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    USER = "User"


class Action(StrEnum):
    """An action on a resource. `ALL` stands in policies only."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


PUB, SUB, CREATE = Action.PUB, Action.SUB, Action.CREATE
UPDATE, DELETE, GET, LIST = Action.UPDATE, Action.DELETE, Action.GET, Action.LIST


class Need(NamedTuple):
    """A resource, and actions of which one is enough; the usual one first."""

    kind: Kind
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name} {'|'.join(self.actions)}"


Alternatives: TypeAlias = tuple[Need, ...]
"""Needs of which one must be met."""


class Look(Protocol):
    """The facts on which rights may depend, beside the request itself."""

    @property
    def cluster(self) -> str:
        """The name of this server's cluster."""

    def has_topic(self, topic: str) -> bool:
        """Whether a topic of this name exists."""

    def has_group(self, group: str) -> bool:
        """Whether a consumer group exists."""

    def topic_at(self, position: int) -> str | None:
        """The topic of the message that begins at a position of the log: the one that it was sent
        to, if it waits in another; None if no message begins there."""


Names: TypeAlias = Callable[[Command], Iterable[str]]
_CHANGES: Final = re.compile("(Topic|Group|Cluster) (Create|Update|Delete)")
Finder: TypeAlias = Callable[[Command, Look], Iterable[Alternatives]]


def _none(_: Command) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Rights:
    """The needs of a request code. `shown` is what docs say of it.

    `names` tells an audit log what is changed, where no need says so. Raises BadInput.
    `signed`: whether a user must ask. `by_secret`: whether only servers and tools with the
    cluster's secret may; `by_super`: whether super users and they may.
    """

    shown: str
    needs: Finder
    names: Names = _none
    signed: bool = True
    by_secret: bool = False
    by_super: bool = False

    @property
    def changes(self) -> bool:
        """Whether it is about changing something: creating, updating, deleting."""
        return _CHANGES.search(self.shown) is not None

    def objects(self, request: Command, look: Look) -> tuple[str, ...]:
        """The objects of a request for an audit log. Raises BadInput."""
        needed = (f"{each[0].kind}:{each[0].name}" for each in self.needs(request, look))
        return tuple(dict.fromkeys((*needed, *self.names(request))))

    def naming(self, names: Names) -> Rights:
        """A copy of these rights, for requests that change what the names say."""
        return replace(self, names=names)

    def __and__(self, other: Rights) -> Rights:
        return Rights(
            f"{self.shown}, {other.shown}",
            lambda request, look: (*self.needs(request, look), *other.needs(request, look)),
        )


def _nothing(_: Command, __: Look) -> Iterable[Alternatives]:
    return ()


OPEN: Final = Rights("-", _nothing, signed=False)
"""The rights of requests that must be answered before anybody can prove who they are, and tell no
secret."""
SIGNED: Final = Rights("any user", _nothing)
BY_SECRET: Final = Rights("the cluster's secret", _nothing, by_secret=True)
BY_SUPER: Final = Rights("a super user", _nothing, by_super=True)


def field(request: Command, name: str) -> str:
    """A field of the request as text; "" if it is missing, which only `*` allows."""
    value = text(request.ext.get(name))
    return value if isinstance(value, str) else ""


def topic(*actions: Action, at: str = "topic") -> Rights:
    """The need of one of these actions on the topic that a field names."""
    return Rights(
        f"Topic {_shown(actions)}",
        lambda request, look: topic_needs(look, field(request, at), *actions),
    )


def group(*actions: Action, at: str = "group") -> Rights:
    """The need of one of these actions on the consumer group that a field names."""
    return Rights(
        f"Group {_shown(actions)}", lambda request, _: group_needs(field(request, at), *actions)
    )


def cluster(*actions: Action) -> Rights:
    """The need of one of these actions on this server's own cluster, whatever the request says."""
    return Rights(
        f"Cluster {_shown(actions)}",
        lambda _, look: ((Need(Kind.CLUSTER, look.cluster, actions),),),
    )


def found(shown: str, needs: Finder) -> Rights:
    """Needs that depend on a request's body, or on what is stored."""
    return Rights(shown, needs)


def fields(*names: str) -> Names:
    """The values of these fields of a request, for an audit log."""
    return lambda request: (f"{name}:{of}" for name in names if (of := field(request, name)))


def topic_needs(look: Look, name: str, *actions: Action) -> Iterable[Alternatives]:
    """The needs of one of these actions on a topic."""
    if name == TRACE_TOPIC and PUB in actions:
        return ()  # every client with message trace on sends there
    if name.startswith(RETRY_PREFIX):
        return group_needs(_owner(look, name.removeprefix(RETRY_PREFIX)), *_of_group(actions))
    if name.startswith(PARTS_PREFIX):
        return ((Need(Kind.TOPIC, name.removeprefix(PARTS_PREFIX), actions),),)
    need = Need(Kind.TOPIC, name, actions)
    if name.startswith(DLQ_PREFIX):
        owner = name.removeprefix(DLQ_PREFIX)
        return ((need, Need(Kind.GROUP, owner, _of_group(actions))),)
    return ((need,),)


def needs_of(need: Need, look: Look) -> Iterable[Alternatives]:
    """The needs of a request that names a resource: it may belong to another one, as a retry topic
    does to its group."""
    if need.kind is Kind.TOPIC:
        return topic_needs(look, need.name, *need.actions)
    if need.kind is Kind.GROUP:
        return group_needs(need.name, *need.actions)
    return ((need,),)


def group_needs(name: str, *actions: Action) -> Iterable[Alternatives]:
    """The needs of one of these actions on a consumer group. That of tools only reads."""
    if name == TOOLS_GROUP and {SUB, GET} & {*actions}:
        return ()
    return ((Need(Kind.GROUP, name, actions),),)


def _of_group(actions: Iterable[Action]) -> tuple[Action, ...]:
    """To send to a group's topics, or to read them, is to consume for the group."""
    return tuple(dict.fromkeys(SUB if action is PUB else action for action in actions))


def _owner(look: Look, name: str) -> str:
    """The group of a retry topic. Stock brokers that pop have `group_topic` and `group+topic`."""
    if look.has_group(name):
        return name
    ends = [at for at, character in enumerate(name) if character in "_+"]
    return next((name[:at] for at in reversed(ends) if look.has_group(name[:at])), name)


def _shown(actions: Iterable[Action]) -> str:
    return " or ".join(actions)
