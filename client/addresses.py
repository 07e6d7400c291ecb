"""Addresses as RocketMQ writes them: "host:port;host:port"."""

from __future__ import annotations

from dledger.errors import BadInput


def parse_address(address: str) -> tuple[str, int]:
    """Split "host:port" (or "[v6]:port")."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(f"{address!r} is no address: expected host:port")
    return host.strip("[]"), int(port)


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
