"""Addresses: hosts, ports, and "host:port" as RocketMQ writes it. Pure.

An address comes from config files, command lines, requests, registrations, routes and log entries.
Whatever is dialled or kept was checked here first: a resolver is asked for nothing but names.

A host is an IPv4 or IPv6 address, or a name of letters, digits, "-", "_" and "." as a resolver
takes it. A name whose last part is a number is an IPv4 address or nothing: resolvers take "127.1"
or "2130706433" for one, each in its own way.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from dledger.errors import BadInput
from dledger.limits import HOST_CHARACTERS_MAX, PORT_MAX

_SHOWN: Final = 80
_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_ZONE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def host_problem(host: str) -> str | None:
    """Why a text is not a host's address or name; None if it is one."""
    if not host:
        return "it is empty"
    if len(host) > HOST_CHARACTERS_MAX:
        return f"it has {len(host)} characters, the limit is {HOST_CHARACTERS_MAX}"
    address, has_zone, zone = host.partition("%")
    if ":" in host:
        with suppress(ValueError):
            ipaddress.IPv6Address(address)
            if not has_zone or _ZONE.fullmatch(zone):
                return None
        return "it is not an IPv6 address"
    labels = host.removesuffix(".").split(".")
    if not all(map(_LABEL.fullmatch, labels)):
        return "a name has letters, digits, - and _, in parts of 1 to 63 characters between dots"
    if _NUMBER.fullmatch(labels[-1]):
        with suppress(ValueError):
            ipaddress.IPv4Address(host)
            return None
        return "it ends with a number and is not an IPv4 address of four numbers"
    return None


def check_host(host: str, what: str = "host") -> None:
    """Raise BadInput for a text that is not a host's address or name."""
    problem = host_problem(host)
    if problem is not None:
        raise BadInput(f"{what} {host[:_SHOWN]!r} is not a valid host: {problem}")


def check_reachable(host: str, what: str = "host") -> None:
    """Raise BadInput for a host that others can't dial: none, or one that only means "here"."""
    check_host(host, what)
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified or address.is_multicast:
            raise BadInput(f"{what} {host!r} is not an address that others can connect to")


def check_port(port: int, what: str = "port") -> None:
    """Raise BadInput for a number that is not a TCP port."""
    if not 0 < port <= PORT_MAX:
        raise BadInput(f"{what} {str(port)[:_SHOWN]} is not within 1 to {PORT_MAX}")


def parse_address(address: str) -> tuple[str, int]:
    """Split "host:port" (or "[v6]:port"). Raises BadInput."""
    host, _, digits = address.rpartition(":")
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    problem = host_problem(host)
    if problem is not None or not _PORT.fullmatch(digits) or not 0 < int(digits) <= PORT_MAX:
        reason = f"port {digits[:_SHOWN]!r}" if problem is None else f"host {host[:_SHOWN]!r}"
        detail = f"; {problem}" if problem is not None and host else ""
        raise BadInput(
            f"{address[:_SHOWN]!r} is not a valid address: expected host:port, got {reason}{detail}"
        )
    return host, int(digits)


def is_address(text: str) -> bool:
    """Whether a text is "host:port"."""
    try:
        parse_address(text)
    except BadInput:
        return False
    return True


def are_addresses(texts: Iterable[str]) -> Iterator[str]:
    """The texts from a server that are addresses."""
    return filter(is_address, texts)


def join_address(host: str, port: int) -> str:
    """The text of an address, as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_addresses(addresses: str) -> tuple[str, ...]:
    """Split RocketMQ's "host:port;host:port" list; each entry is checked. Raises BadInput."""
    found = tuple(part.strip() for part in addresses.split(";") if part.strip())
    if not found:
        raise BadInput(f"{addresses!r} names no address: expected host:port;host:port")
    for address in found:
        parse_address(address)
    return found


def origin_of(address: str) -> str | None:
    """The origin of an address: the address itself, of IPv6 its /64 network. None for loopback."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            if parsed.is_loopback:
                return None
            return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
        parsed = parsed.ipv4_mapped
    return None if parsed.is_loopback else str(parsed)
