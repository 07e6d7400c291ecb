"""Clients of a cluster, made by methods of any object that knows its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
ClientT = TypeVar("ClientT")


class Addressed(Protocol):
    """A cluster, as far as clients know it."""

    @property
    def namesrv_addr(self) -> str:
        """Address of the cluster's name servers, for clients."""
        ...


def with_address(
    make: Callable[Concatenate[str, P], ClientT],
) -> Callable[Concatenate[Addressed, P], ClientT]:
    """A method that makes a client of the cluster."""

    def method(cluster: Addressed, /, *args: P.args, **kwargs: P.kwargs) -> ClientT:
        return make(cluster.namesrv_addr, *args, **kwargs)

    return method
