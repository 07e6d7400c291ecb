"""A hooks file: the nodes of a broker group, and how its operator hurts and heals each.

TOML. A fault has a name of those that `mqchaos list` shows, so that reports know what it means; its
commands are lines for `/bin/sh`, and do what the operator says::

    broker = "broker-a"

    [nodes.n0]
    address = "127.0.0.1:10911"
    faults.kill = { inject = "ssh n0 pkill -9 -f BrokerStartup", heal = "ssh n0 start-broker" }

    [workload]              # may be left out: then our own client sends and reads
    command = "java -cp ... Steady ..."

A workload's command is started once. It writes a history (docs/reference/chaos.md) to its
standard output, stops sending at the first line on its standard input, and ends at the second.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from dledger.addresses import parse_address
from dledger.errors import BadInput, ConfigError
from mqchaos.faults.kinds import KINDS
from mqchaos.limits import HOOK_TIMEOUT_S, HOOKS_BYTES_MAX, NODES_MAX


class Hook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of one node: commands that do it and undo it, each within `timeout_s`."""

    inject: str
    heal: str
    timeout_s: float = HOOK_TIMEOUT_S


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node: its "host:port" for clients, as name servers give it, and what can be done to it."""

    address: str
    faults: dict[str, Hook]


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The load of another client's."""

    command: str


class Hooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a hooks file: a broker group, its nodes, and perhaps a program as the load."""

    broker: str
    nodes: dict[str, Node]
    workload: Program | None = None

    def node_at(self, address: str | None) -> str | None:
        """The name of the node that has this address."""
        return next((name for name, node in self.nodes.items() if node.address == address), None)

    def faults(self) -> list[str]:
        """The faults that every node has."""
        (first, *others) = self.nodes.values()
        return [name for name in first.faults if all(name in each.faults for each in others)]


def read_hooks(path: Path) -> Hooks:
    """The hooks of a file. Raises ConfigError, which names the field."""
    try:
        with path.open("rb") as file:
            raw = file.read(HOOKS_BYTES_MAX + 1)
        if len(raw) > HOOKS_BYTES_MAX:
            raise ConfigError(
                f"{path} has more than {HOOKS_BYTES_MAX} bytes: it is not a hooks file"
            )
        hooks = msgspec.convert(tomllib.loads(raw.decode()), Hooks)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    for field, problem in _problems(hooks):
        raise ConfigError(f"{path}: {field} {problem}")
    return hooks


def _problems(hooks: Hooks) -> list[tuple[str, str]]:
    """The faults of the hooks, by field."""
    found = []
    if not hooks.broker:
        found.append(("broker", "is empty: it is the broker group's name"))
    if not 1 <= len(hooks.nodes) <= NODES_MAX:
        found.append(("nodes", f"names {len(hooks.nodes)} nodes; there may be 1 to {NODES_MAX}"))
    seen: dict[str, str] = {}
    for name, node in hooks.nodes.items():
        field = f"nodes.{name}"
        try:
            parse_address(node.address)
        except BadInput as error:
            found.append((f"{field}.address", f"is not a host:port: {error}"))
        if node.address in seen:
            found.append((f"{field}.address", f"is that of {seen[node.address]}, too"))
        seen[node.address] = name
        if not node.faults:
            found.append((f"{field}.faults", "is empty: name one fault at least"))
        for fault, hook in node.faults.items():
            found += _hook_problems(f"{field}.faults.{fault}", fault, hook)
    if not found and not hooks.faults():
        found.append(("nodes", "have no fault in common"))
    if hooks.workload is not None and not hooks.workload.command.strip():
        found.append(("workload.command", "is empty"))
    return found


def _hook_problems(field: str, fault: str, hook: Hook) -> list[tuple[str, str]]:
    known = [name for name, kind in KINDS.items() if kind.undone]
    found = []
    if fault not in known:
        found.append((field, f"is not a known fault; there are {', '.join(known)}"))
    for name, command in (("inject", hook.inject), ("heal", hook.heal)):
        if not command.strip() or "\0" in command:
            found.append((f"{field}.{name}", "is not a command"))
    if not 0 < hook.timeout_s <= HOOK_TIMEOUT_S * 10:
        found.append(
            (f"{field}.timeout_s", f"is {hook.timeout_s}; it must be up to {HOOK_TIMEOUT_S * 10}")
        )
    return found
