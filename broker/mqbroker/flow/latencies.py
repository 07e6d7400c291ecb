"""Times of requests, from their arrival until their answer is written, as RocketMQ counts them.
Pure.

An answer costs a look-up and an append. All times that were appended are sorted into buckets at
once, each second and when somebody asks for the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from dledger.metrics.text import Buckets
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, Command
from mqbroker.flow import limits

SUCCESS, ONEWAY = "success", "oneway"
FAILED, NOT_WRITTEN = "process_request_failed", "write_channel_failed"
UNKNOWN_CODE: Final = -1
"""Stands for all codes that nobody knows: a client can make up as many as it likes."""
_REQUESTS: Final = frozenset(RequestCode)
_RESPONSES: Final = frozenset(ResponseCode) | {None}


class Kind(NamedTuple):
    """Requests that are counted together. `response`: None if there was none."""

    request: int
    response: int | None
    held: bool
    result: str

    def labels(self) -> dict[str, str]:
        """The labels, as RocketMQ writes them."""
        labels = {
            "protocol_type": "remoting",
            "request_code": _name(RequestCode, self.request),
            "is_long_polling": "true" if self.held else "false",
            "result": self.result,
        }
        if self.response is not None:
            labels["response_code"] = _name(ResponseCode, self.response)
        return labels


class Latencies:
    """The times of one process. `clock_s` is a monotonic clock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.clock_s = clock_s
        #: How long tools' requests that make topics took, and those that make groups.
        self.topics, self.groups = Makings(clock_s), Makings(clock_s)
        self._new: dict[tuple[int, int | None, bool, str], list[float]] = {}
        self._sorted: dict[Kind, Buckets] = {}

    def answered(self, request: Command, code: int | None, result: str = SUCCESS) -> None:
        """A request was answered with this code, or ended without an answer: None."""
        if request.flag & FLAG_ONEWAY:
            result = ONEWAY
        times = self._new.get((request.code, code, request.held, result))
        if times is None:
            times = self._begin(Kind(request.code, code, request.held, result))
        times.append(self.clock_s() - request.arrived_s)

    def failed(self, request: Command) -> None:
        """A handler failed in a way that nobody foresaw, or could not read its request."""
        times = self._begin(Kind(request.code, None, request.held, FAILED))
        times.append(self.clock_s() - request.arrived_s)

    def _begin(self, kind: Kind) -> list[float]:
        if kind.request not in _REQUESTS:
            kind = kind._replace(request=UNKNOWN_CODE)
        if kind.response not in _RESPONSES:
            kind = kind._replace(response=UNKNOWN_CODE)
        return self._new.setdefault(kind, [])

    def sort(self) -> None:
        """Sort the times that have come into the buckets. Call this once a second."""
        for kind, times in self._new.items():
            if times:
                took_ms = np.array(times) * 1000
                times.clear()
                self._buckets(kind).take(_sorted(took_ms))

    def _buckets(self, kind: tuple[int, int | None, bool, str]) -> Buckets:
        return self._sorted.setdefault(Kind(*kind), Buckets(limits.RPC_BOUNDS_MS))

    def rows(self) -> list[tuple[dict[str, str], Buckets]]:
        """Labels and times in ms of all requests that were answered so far."""
        self.sort()
        return [(kind.labels(), buckets) for kind, buckets in self._sorted.items()]


class Makings:
    """How long requests of one kind took, by whether they succeeded and were about the system's
    own."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        #: By (succeeded, is the system's), in ms.
        self.rows: dict[tuple[bool, bool], Buckets] = {}

    @contextmanager
    def timed(self, *, is_system: bool = False) -> Iterator[None]:
        """Count the time of the block; it failed if it raises."""
        began_s = self._clock_s()
        try:
            yield
        except Exception:
            self._count(began_s, (False, is_system))
            raise
        self._count(began_s, (True, is_system))

    def _count(self, began_s: float, key: tuple[bool, bool]) -> None:
        buckets = self.rows.setdefault(key, Buckets(limits.MAKING_BOUNDS_MS))
        buckets.add((self._clock_s() - began_s) * 1000)


def _sorted(took_ms: np.ndarray) -> Buckets:
    buckets = Buckets(limits.RPC_BOUNDS_MS)
    places = np.searchsorted(limits.RPC_BOUNDS_MS, took_ms)
    buckets.counts = np.bincount(places, minlength=len(limits.RPC_BOUNDS_MS) + 1).tolist()
    buckets.total = float(took_ms.sum())
    return buckets


def _name(codes: type[RequestCode] | type[ResponseCode], number: int) -> str:
    try:
        return codes(number).name.lower()
    except ValueError:
        return str(number)
