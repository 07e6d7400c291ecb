"""Unique names: client ids and messages' unique keys, in RocketMQ's formats.

A unique key is 32 hex digits: IPv4 address (8), process id (4), a random number in place of Java's
class-loader hash (8), milliseconds since the month began (8), a counter (4). The last two are kept
as one 48-bit number that only grows, so keys of one producer sort by age.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import UTC, datetime, timedelta

from dledger.addresses import parse_address
from dledger.remoting.message import host_bytes

NUMBER_DIGITS = 12
"""Hexadecimal digits of a key's number."""
_COUNTER_BITS = 16
_NUMBER_MASK = (1 << 48) - 1


def local_host_towards(address: str) -> str:
    """IP address of this machine as a server at "host:port" sees it; no packet is sent."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def make_client_id(host: str) -> str:
    """RocketMQ's clientIP@instance; the instance is this process and a random number."""
    return f"{host}@{os.getpid()}#{secrets.token_hex(4)}"


def numbered_key(front: str, number: int) -> str:
    """The key of a number, behind what all keys of a producer begin with."""
    return f"{front}{number:012X}"


class UniqueKeys:
    """Maker of messages' unique keys. Call `refresh` now and then: it brings the time part up to
    date."""

    def __init__(self, host: str) -> None:
        address = host_bytes(host, 0)[:-4][-4:]
        process = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._prefix = (address + process + secrets.token_bytes(4)).hex().upper()
        self._number = 0
        self._month_began_ms = 0
        self._month_ends_ms = 0

    def refresh(self, now_ms: int) -> None:
        """Bring the time part up to `now_ms` (Unix time); it never goes back within a month."""
        if not self._month_began_ms <= now_ms < self._month_ends_ms:
            self._begin_month(now_ms)
        age_ms = now_ms - self._month_began_ms
        self._number = max(self._number, age_ms << _COUNTER_BITS)

    def next(self) -> str:
        """A key that was never made before."""
        self._number += 1
        return numbered_key(self._prefix, self._number & _NUMBER_MASK)

    def take(self, count: int) -> tuple[str, range]:
        """Keys that were never made before: their front, and the numbers behind it.

        They don't pass the end of what a key's digits can say.
        """
        if (self._number & _NUMBER_MASK) + count > _NUMBER_MASK:
            self._number = (self._number | _NUMBER_MASK) + 1
        first = (self._number & _NUMBER_MASK) + 1
        self._number += count
        return self._prefix, range(first, first + count)

    def _begin_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        began = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        ends = (began + timedelta(days=32)).replace(day=1)
        self._month_began_ms = int(began.timestamp() * 1000)
        self._month_ends_ms = int(ends.timestamp() * 1000)
