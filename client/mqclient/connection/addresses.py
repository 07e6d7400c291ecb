"""Addresses as RocketMQ writes them: "host:port;host:port"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from dledger.errors import BadInput
from dledger.limits import PORT_MAX
from mqclient import limits


def parse_address(address: str) -> tuple[str, int]:
    """Split "host:port" (or "[v6]:port")."""
    host, _, port = address.rpartition(":")
    digits = port.isascii() and port.isdigit() and len(port) <= limits.PORT_DIGITS_MAX
    fits = bool(host) and len(address) <= limits.ADDRESS_CHARACTERS_MAX
    if not fits or not digits or not 0 < int(port) <= PORT_MAX:
        raise BadInput(
            f"{address[: limits.ADDRESS_CHARACTERS_MAX]!r} is no address: expected host:port"
        )
    return host.strip("[]"), int(port)


def are_addresses(addresses: Iterable[str]) -> Iterator[str]:
    """The texts from a server that are addresses."""
    for address in addresses:
        with suppress(BadInput):
            parse_address(address)
            yield address


def join_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_addresses(addresses: str) -> tuple[str, ...]:
    """Split RocketMQ's "host:port;host:port" list; each entry is checked."""
    found = tuple(part.strip() for part in addresses.split(";") if part.strip())
    if not found:
        raise BadInput(f"{addresses!r} names no address: expected host:port;host:port")
    for address in found:
        parse_address(address)
    return found
