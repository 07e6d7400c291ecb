"""Addresses and names as RocketMQ writes them: "host:port;host:port", and what a group may be."""

from __future__ import annotations

import re

from dledger.errors import BadInput

_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")


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


def check_group(group: str) -> str:
    """The name of a producer or consumer group, if brokers would accept it. Raises BadInput."""
    if not _NAME.fullmatch(group):
        raise BadInput(
            f"group name {group!r}: 1 to 120 of the characters a-z A-Z 0-9 % | _ - are allowed"
        )
    return group
