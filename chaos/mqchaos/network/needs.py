"""Means that this machine lacks for a network of the harness's own. Each thing is tried, in a
namespace that is gone with the trial."""

from __future__ import annotations

import os
from functools import cache

from mqchaos.cluster.processes import ClusterError
from mqchaos.cluster.tools import run_tool, tool
from mqchaos.network.rules import Rule

_CHAIN = 'add chain netdev t c { type filter hook ingress device "lo" priority 0; }'
_TABLE = f"add table netdev t\n{_CHAIN}\n"
_DROP = "numgen random mod 9 < 1 counter drop"


@cache
def no_namespaces() -> str | None:
    """Why servers can't have namespaces here; None if they can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    try:
        for name in ("ip", "tc", "nft", "ss", "nsenter", "unshare", "setpriv"):
            tool(name)
        _try("a bridge", "ip", "link", "add", "hub", "type", "bridge")
        _try("a veth pair", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other")
        _try("rules for a port", "nft", "-f", "-", stdin=f"{_TABLE}add rule netdev t c {_DROP}\n")
    except ClusterError as error:
        return str(error)
    return None


@cache
def no_delays() -> str | None:
    """Why packets can't be delayed."""
    words = ("dev", "lo", "root", "netem", "delay", "1ms")
    return _lacks("netem", "tc", "qdisc", "add", *words)


@cache
def no_widths() -> str | None:
    """Why links can't be narrow; packets that are late need the same."""
    return _lacks("htb", "tc", "qdisc", "add", "dev", "lo", "root", "htb")


@cache
def no_copies() -> str | None:
    """Why packets can't be doubled."""
    stdin = f'{_TABLE}add rule netdev t c counter dup to "lo"\n'
    return _lacks("copies of packets", "nft", "-f", "-", stdin=stdin)


@cache
def no_changes() -> str | None:
    """Why packets can't be garbled."""
    stdin = f"{_TABLE}add rule netdev t c ip protocol tcp @th,160,16 set 0xdead\n"
    return _lacks("changed packets", "nft", "-f", "-", stdin=stdin)


def kernel_lacks(rule: Rule | None) -> str | None:
    """Whatever a rule needs and the machine lacks; None for nothing. `rule` None: a reset."""
    missing = no_namespaces()
    if rule is None or missing is not None:
        return missing
    return (
        (no_delays() if rule.late else None)
        or (no_widths() if rule.late or rule.bytes_per_s else None)
        or (no_copies() if rule.doubled else None)
        or (no_changes() if rule.garbled else None)
    )


def _lacks(what: str, *argv: str, stdin: str = "") -> str | None:
    try:
        _try(what, *argv, stdin=stdin)
    except ClusterError as error:
        return str(error)
    return None


def _try(what: str, *argv: str, stdin: str = "") -> None:
    try:
        run_tool("unshare", "--net", *argv, stdin=stdin)
    except ClusterError as error:
        said = str(error).splitlines()
        raise ClusterError(f"no {what} in this kernel: {said[0][:200]}") from error
