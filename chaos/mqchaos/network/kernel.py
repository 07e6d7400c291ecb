"""The kernel's rules for packets on their way: words for nftables and tc. Pure.

All of it stands at the ports of the harness's switch, one for each server and one for all clients.
Where a sender's packets come in, nftables drops, doubles and garbles them: one table for each
fault, with its counters, so that faults come and go without each other. Where a receiver's packets
go out, tc lets them wait: a class of htb for each sender, as wide as its link, and netem in it if
its packets are late. That is one tree for all faults, and made anew when one comes or goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mqchaos.limits import LINE_BITS_PER_S, PACKETS_WAITING_MAX
from mqchaos.network.rules import Direction, Rule

_SHARES: Final = 100_000
_GARBLED_AT_BITS: Final = 20 * 8
"""In a TCP segment: its options, or its first bytes. Of those its checksum is then false."""


@dataclass(frozen=True, slots=True)
class Plug:
    """Where something is plugged in: its number names the port. `host` is its address."""

    number: int
    host: str

    @property
    def port(self) -> str:
        """The name of the switch's port."""
        return f"port-{self.number}"


Plugs = Mapping[str, Plug]
"""By the names that directions have."""


def table_added(
    table: str, directions: Collection[Direction], rule: Rule, plugs: Plugs
) -> list[str]:
    """Commands for `nft -f`: a fault's table."""
    lines = [f"add table netdev {table}"]
    for port in sorted({plugs[source].port for source, _ in directions}):
        hook = f'type filter hook ingress device "{port}" priority 0; policy accept;'
        lines.append(f"add chain netdev {table} {port} {{ {hook} }}")
    for source, target in sorted(directions):
        chain, host, out = plugs[source].port, plugs[target].host, plugs[target].port
        lines += [
            f"add rule netdev {table} {chain} ip daddr {host} {words}"
            for words in _words(rule, out)
        ]
    return lines


def table_removed(table: str) -> list[str]:
    """Commands for `nft -f`: the end of a fault's table."""
    return [f"delete table netdev {table}"]


def _words(rule: Rule, out: str) -> list[str]:
    """A rule of nftables for each thing that happens to packets; what waits is only counted."""
    words = ["counter drop"] if rule.cut else []
    if rule.loss:
        words.append(f"{_some(rule.loss)} counter drop")
    if rule.doubled:
        words.append(f'{_some(rule.doubled)} counter dup to "{out}"')
    if rule.garbled:
        place = f"@th,{_GARBLED_AT_BITS},16"
        words.append(f"ip protocol tcp {_some(rule.garbled)} counter {place} set 0xdead")
    return words or ["counter"]


def _some(share: float) -> str:
    return f"numgen random mod {_SHARES} < {max(1, round(share * _SHARES))}"


def packets_met(listed: str) -> dict[str, int]:
    """How many packets each table's rules have met, from `nft -j list ruleset`."""
    met: dict[str, int] = {}
    for item in msgspec.json.decode(listed, type=_Listed).nftables:
        rule = item.get("rule", {"expr": ()})
        for word in rule["expr"]:
            if "counter" in word:
                met[rule["table"]] = met.get(rule["table"], 0) + word["counter"]["packets"]
    return met


class _Listed(msgspec.Struct):
    """The output of `nft -j`: tables, chains, rules, as a list."""

    nftables: list[dict[str, Any]]  # as nft's own JSON has it


def waits(rule: Rule) -> bool:
    """Whether a rule needs a queue."""
    return rule.late or bool(rule.bytes_per_s)


def shaped(rules: Mapping[Direction, Rule], plugs: Plugs) -> dict[str, list[str]]:
    """Port -> commands for `tc -batch`, for each whose queues are anything but the kernel's own."""
    ports: dict[str, list[str]] = {}
    for (source, target), rule in sorted(rules.items()):
        if waits(rule):
            port = plugs[target].port
            lines = ports.setdefault(port, [f"qdisc add dev {port} root handle 1: htb default 0"])
            lines += _class(port, plugs[source], rule)
    return ports


def _class(port: str, source: Plug, rule: Rule) -> Iterable[str]:
    number = f"1:{source.number:x}"
    bits_per_s = round(rule.bytes_per_s * 8) or LINE_BITS_PER_S
    yield (
        f"class add dev {port} parent 1: classid {number} "
        f"htb rate {bits_per_s}bit burst 64k cburst 64k quantum 60000"
    )
    if rule.late:
        words = " ".join(late(rule))
        yield f"qdisc add dev {port} parent {number} netem {words}"
    yield (
        f"filter add dev {port} parent 1: protocol ip prio 1 "
        f"u32 match ip src {source.host}/32 flowid {number}"
    )


def late(rule: Rule) -> Sequence[str]:
    """Netem's words for packets that wait from `delay_s` to `jitter_s` longer."""
    half_ms = rule.jitter_s * 500
    words = [f"limit {PACKETS_WAITING_MAX}", f"delay {rule.delay_s * 1000 + half_ms:.3f}ms"]
    words += [f"{half_ms:.3f}ms"] if half_ms else []
    words += [f"reorder {rule.hasty * 100:.3f}%"] if rule.hasty else []
    return words
