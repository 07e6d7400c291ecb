"""The quota of connections: how many, from where, and how much memory is kept for them. Pure.

One `ConnectionQuota` is shared by all ports of a server. It holds three bounds together:

* places: when all are taken, a newcomer replaces the oldest connection that has not sent a request;
  if all have sent one the newcomer is refused;
* origins: one address, or one /64 network of IPv6, may have only some of the places. Loopback has
  no such bound: a program on this machine shares it with the server anyway;
* bytes: half-sent frames, queued answers, requests that wait for their answer, and what a handler
  keeps for a client. When the sum is above the bound, the connection that keeps most is closed,
  then the next.

Bytes are accounted in steps (`CHARGE_STEP_BYTES`), so that small requests cost no accounting. Each
connection is charged `CONNECTION_BYTES` from the start, which covers the rest below a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dledger.addresses import origin_of
from dledger.limits import CONNECTION_BYTES, CONNECTIONS_MAX, MEMORY_BYTES_MAX, MIB


class Place:
    """The place of one connection. `close` ends the connection, with the reason."""

    __slots__ = ("charged_bytes", "close", "origin", "spoke", "taken")

    def __init__(self, origin: str | None, close: Callable[[str], None]) -> None:
        self.origin = origin
        self.close = close
        self.spoke = False
        self.taken = True
        self.charged_bytes = CONNECTION_BYTES


class ConnectionQuota:
    """The places of one server, and the memory that they share. 0 per address: half of all."""

    def __init__(
        self,
        places_max: int = CONNECTIONS_MAX,
        bytes_max: int = MEMORY_BYTES_MAX,
        per_address_max: int = 0,
    ) -> None:
        self.places_max = places_max
        self.bytes_max = bytes_max
        self.per_address_max = per_address_max or max(1, places_max // 2)
        #: The memory of all connections, as charged so far.
        self.charged_bytes = 0
        #: Connections refused so far, closed for a newcomer, and closed because of the memory they
        #: kept.
        self.refused = self.evicted = self.offenders = 0
        #: Why the last one was refused.
        self.refusal = ""
        self._places: dict[Place, None] = {}
        self._silent: dict[Place, None] = {}
        self._origins: Counter[str] = Counter()

    @property
    def places_taken(self) -> int:
        """How many connections there are."""
        return len(self._places)

    def enter(self, address: str, close: Callable[[str], None]) -> Place | None:
        """A place for a connection from `address`; None if it is refused."""
        origin = origin_of(address)
        if origin is not None and self._origins[origin] >= self.per_address_max:
            self._refuse(
                f"{self.per_address_max} are open from {origin}, the most allowed from one address"
            )
            return None
        if len(self._places) >= self.places_max:
            if not self._silent:
                self._refuse(f"{self.places_max} are open, the most allowed")
                return None
            self.evicted += 1
            self._close(next(iter(self._silent)), "it never spoke, and a newcomer needs its place")
        place = Place(origin, close)
        self._places[place] = self._silent[place] = None
        if origin is not None:
            self._origins[origin] += 1
        self.charged_bytes += place.charged_bytes
        self._relieve()
        return place if place.taken else None

    def spoke(self, place: Place) -> None:
        """A connection has sent its first whole frame: it is no longer closed for a newcomer."""
        place.spoke = True
        self._silent.pop(place, None)

    def charge(self, place: Place, kept_bytes: int) -> None:
        """Set the memory that is kept for a connection. Closes connections if the sum is too
        large."""
        if place.taken:
            charged_bytes = CONNECTION_BYTES + kept_bytes
            self.charged_bytes += charged_bytes - place.charged_bytes
            place.charged_bytes = charged_bytes
            self._relieve()

    def leave(self, place: Place) -> None:
        """A connection is gone, or about to go. May be called again."""
        if place.taken:
            place.taken = False
            del self._places[place]
            self._silent.pop(place, None)
            self.charged_bytes -= place.charged_bytes
            if place.origin is not None:
                self._origins[place.origin] -= 1
                if not self._origins[place.origin]:
                    del self._origins[place.origin]

    def _relieve(self) -> None:
        while self.charged_bytes > self.bytes_max and self._places:
            largest = max(self._places, key=_charged)
            self.offenders += 1
            self._close(
                largest,
                f"{largest.charged_bytes} bytes are kept for it, the most of all, and "
                f"{self.charged_bytes} for all connections: the bound is {self.bytes_max}",
            )

    def _close(self, place: Place, reason: str) -> None:
        self.leave(place)
        place.close(reason)

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        self.refusal = reason


def memory_for_connections(machine_bytes: int) -> int:
    """The bound if none is set: a quarter of the memory, `MEMORY_BYTES_MAX` at most."""
    return max(MIB, min(MEMORY_BYTES_MAX, machine_bytes // 4))


def places_for(descriptors: int, reserved: int) -> int:
    """How many connections a process may take if it needs `reserved` descriptors itself."""
    return max(1, min(CONNECTIONS_MAX, descriptors - reserved))


def _charged(place: Place) -> int:
    return place.charged_bytes
