"""A network of the harness's own: a namespace and an address for each server, and a switch.

The kernel counts who uses a network namespace. These have no names: only the harness's open files
and the processes in them hold them, so all of it (links, ports, rules) is gone with the last of
them, however that ends. Servers are told to die with the thread that started them; clients end when
their standard input does. The harness itself moves into the switch's namespace, from where it
reaches every server past all faults, and back in the end. Nothing of the machine's own network is
touched, and nothing leads out of this one.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from mqchaos.cluster.layout import CLIENTS, Layout, host_in_namespace
from mqchaos.cluster.processes import ClusterError
from mqchaos.cluster.tools import run_tool, tool
from mqchaos.network import kernel
from mqchaos.network.control import Request, Status
from mqchaos.network.kernel import Plug
from mqchaos.network.rules import Direction, Rule, combined

_CLONE_NEWNET: Final = 0x40000000
_THIS: Final = "/proc/thread-self/ns/net"
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STXCSUM: Final = 0x17
_LINK: Final = "eth0"


class Switch:
    """The namespaces, by the names that directions have, and what is broken between them."""

    def __init__(self, layout: Layout) -> None:
        names = [server.name for server in layout.servers]
        self._plugs = {
            name: Plug(number, host_in_namespace(number))
            for name in [*names, CLIENTS]
            for number in [layout.number(name)]
        }
        self._namespaces: dict[str, int] = {}
        self._hub = -1
        self._faults: dict[str, tuple[frozenset[Direction], Rule]] = {}
        self._tables: dict[str, str] = {}
        self._shaped: set[str] = set()
        self._made = 0

    @contextmanager
    def plugged_in(self) -> Iterator[Switch]:
        """Make it and move this thread there; move back in the end. Raises ClusterError."""
        home = os.open(_THIS, os.O_RDONLY)
        with ExitStack() as stack:
            stack.callback(os.close, home)
            try:
                stack.callback(_enter, home)
                self._hub = _new_namespace()
                stack.callback(os.close, self._hub)
                self._make_hub()
                for name, plug in self._plugs.items():
                    self._namespaces[name] = _new_namespace()
                    stack.callback(os.close, self._namespaces[name])
                    self._plug_in(plug)
                _enter(self._hub)
            except OSError as error:
                raise ClusterError(f"no network namespace: {error.strerror}") from error
            yield self

    def inside(self, name: str) -> list[str]:
        """A command that becomes the one behind it, in a server's namespace, or the clients'."""
        return self._entering(self._namespaces[name])

    def to_live_inside(self, name: str) -> list[str]:
        """A command like that of `inside`, for a process that must end with the thread that starts
        it."""
        return [tool("setpriv"), "--pdeathsig", "KILL", *self.inside(name)]

    def take(self, request: Request) -> Status:
        """Do what the harness wants, and say how things are. Raises ClusterError."""
        if request.rule is not None:
            self._break(request.name, frozenset(request.directions), request.rule)
        if request.healed and request.name in self._faults:
            self._mend(request.name)
        met = kernel.packets_met(self._in_hub("nft", "-j", "list", "ruleset"))
        touched = {name: met.get(table, 0) for name, table in self._tables.items()}
        if request.reset:
            touched[request.name] = self._reset(request.directions)
        return Status(touched, 0)

    def _break(self, name: str, directions: frozenset[Direction], rule: Rule) -> None:
        self._made += 1
        self._tables[name] = f"fault-{self._made}"
        self._faults[name] = directions, rule
        lines = kernel.table_added(self._tables[name], directions, rule, self._plugs)
        self._in_hub("nft", "-f", "-", stdin="\n".join(lines) + "\n")
        self._shape(rule)

    def _mend(self, name: str) -> None:
        _, rule = self._faults.pop(name)
        lines = kernel.table_removed(self._tables.pop(name))
        self._in_hub("nft", "-f", "-", stdin="\n".join(lines) + "\n")
        self._shape(rule)

    def _shape(self, changed: Rule) -> None:
        """Make the queues anew, if the rule that came or went was about them."""
        if not kernel.waits(changed):
            return
        each: dict[Direction, list[Rule]] = {}
        for directions, rule in self._faults.values():
            for direction in directions:
                each.setdefault(direction, []).append(rule)
        ports = kernel.shaped({way: combined(rules) for way, rules in each.items()}, self._plugs)
        removed = [f"qdisc del dev {port} root" for port in sorted(self._shaped)]
        lines = [*removed, *(line for port in ports.values() for line in port)]
        self._in_hub("tc", "-batch", "-", stdin="\n".join(lines) + "\n")
        self._shaped = set(ports)

    def _reset(self, directions: Sequence[Direction]) -> int:
        """Make the kernel abort connections at both ends. Returns how many there were."""
        count = 0
        for source, target in directions:
            host = self._plugs[target].host
            command = [*self.inside(source), "ss", "-H", "-n", "-t", "-K", "dst", host]
            count += len(run_tool(*command).splitlines())
        return count

    def _in_hub(self, *argv: str, stdin: str = "") -> str:
        return run_tool(*self._entering(self._hub), *argv, stdin=stdin)

    def _entering(self, namespace: int) -> list[str]:
        return [tool("nsenter"), f"--net=/proc/{os.getpid()}/fd/{namespace}", "--"]

    def _make_hub(self) -> None:
        lines = [
            "link set lo up",
            "link add hub type bridge",
            f"addr add {host_in_namespace()}/24 dev hub",
            "link set hub up",
        ]
        run_tool("ip", "-batch", "-", stdin="\n".join(lines) + "\n")

    def _plug_in(self, plug: Plug) -> None:
        """From inside a new namespace: a link to the switch, whose packets have checksums."""
        hub = f"/proc/{os.getpid()}/fd/{self._hub}"
        lines = [
            "link set lo up",
            f"link add {_LINK} type veth peer name {plug.port} netns {hub}",
            f"addr add {plug.host}/24 dev {_LINK}",
            f"link set {_LINK} up",
        ]
        run_tool("ip", "-batch", "-", stdin="\n".join(lines) + "\n")
        _compute_checksums(_LINK)
        self._in_hub("ip", "link", "set", plug.port, "master", "hub", "up")


def _new_namespace() -> int:
    """Move this thread into a new network namespace; a descriptor that holds it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise _last_error()
    return os.open(_THIS, os.O_RDONLY)


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _compute_checksums(link: str) -> None:
    """Between two namespaces the kernel leaves checksums out: no receiver would miss a bit."""
    value = ctypes.create_string_buffer(struct.pack("II", _ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sQ8x", link.encode(), ctypes.addressof(value))
    with socket.socket() as probe:
        fcntl.ioctl(probe, _SIOCETHTOOL, request)
