"""Rules of a link: waits of the bytes that go over it, and who can't hear whom. Pure.

A link is named by who sends and who receives: two names of servers, or CLIENTS for all clients
together. Each direction has a rule of its own, so whoever can speak and not hear is data like
anything else. Several faults may be in force: a direction does what all of them say.

TCP repairs what a network does to packets: over a byte stream a packet that is lost or out of order
is a wait, and a duplicate is nothing. So loss is a wait for the proxy, as long as a retransmission
takes. The kernel, which forwards packets, does to them what the rule says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

import msgspec

from mqchaos.cluster.layout import CLIENTS, Layout, NodeLayout

Direction: TypeAlias = tuple[str, str]
"""(who sends, who receives)."""


class Rule(msgspec.Struct, frozen=True):
    """The rule for bytes that go one way.

    `cut`: they wait until the cut is over, and so does the end of the connection.
    `delay_s` and up to `jitter_s` more: how long each read takes. `loss`: the share of reads that
    have to be sent again. `bytes_per_s`: how many fit through; 0 for any number. Shares of
    packets, for the kernel alone: `doubled` ones come twice, `hasty` ones before those that were
    delayed, and of `garbled` ones two bytes are others.
    """

    cut: bool = False
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: float = 0.0
    doubled: float = 0.0
    hasty: float = 0.0
    garbled: float = 0.0

    @property
    def of_packets(self) -> bool:
        """Whether a byte stream can't have it."""
        return bool(self.doubled or self.hasty or self.garbled)

    @property
    def late(self) -> bool:
        """Whether the rule delays packets."""
        return bool(self.delay_s or self.jitter_s)


PLAIN: Final = Rule()
CUT: Final = Rule(cut=True)


def combined(rules: Iterable[Rule]) -> Rule:
    """All of them at once: delays add up, the worst loss and the narrowest line count."""
    result = PLAIN
    for rule in rules:
        widths = [width for width in (result.bytes_per_s, rule.bytes_per_s) if width]
        result = Rule(
            cut=result.cut or rule.cut,
            delay_s=result.delay_s + rule.delay_s,
            jitter_s=result.jitter_s + rule.jitter_s,
            loss=max(result.loss, rule.loss),
            bytes_per_s=min(widths, default=0.0),
            doubled=max(result.doubled, rule.doubled),
            hasty=max(result.hasty, rule.hasty),
            garbled=max(result.garbled, rule.garbled),
        )
    return result


# -- shapes: whom a fault of some nodes separates -----------------------------------------

Shape: TypeAlias = Callable[[Layout, Collection[str]], frozenset[Direction]]
"""The directions that a fault of these servers is about."""


def _both(some: Iterable[str], others: Iterable[str]) -> frozenset[Direction]:
    others = list(others)
    there = {(one, other) for one in some for other in others if one != other}
    return frozenset(there | {(other, one) for one, other in there})


def _others(layout: Layout, hurt: Collection[str]) -> list[str]:
    """The other nodes of their groups, in order."""
    groups = {node.broker for node in layout.nodes if node.name in hurt}
    names = [node.name for node in layout.nodes if node.broker in groups]
    return [name for name in names if name not in hurt]


def from_peers(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Links between the hurt nodes and the rest of their group, both ways. Clients reach them
    all."""
    return _both(hurt, _others(layout, hurt))


def from_everybody(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Links of the hurt nodes to peers, clients and name servers, both ways."""
    return from_peers(layout, hurt) | from_clients(layout, hurt) | from_namesrvs(layout, hurt)


def from_clients(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Links between the hurt nodes and all clients, both ways."""
    return _both(hurt, [CLIENTS])


def from_namesrvs(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Links between the hurt nodes and all name servers, both ways."""
    return _both(hurt, [server.name for server in layout.namesrvs])


def unheard(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Links from the hurt nodes to their peers: they hear, and are not heard."""
    others = _others(layout, hurt)
    return frozenset((one, other) for one in hurt for other in others)


def unhearing(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Links to the hurt nodes from their peers: they are heard, and do not hear."""
    return frozenset((other, one) for one, other in unheard(layout, hurt))


def but_for_a_bridge(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Two sides that don't hear each other, and one node that both hear."""
    return _both(hurt, _others(layout, hurt)[1:])


def ring(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """Each hears the one before it and the one behind it, as they stand in a ring."""
    names = [node.name for node in layout.nodes if node.name in hurt]
    count = len(names)
    return frozenset(
        (names[one], names[other])
        for one in range(count)
        for other in range(count)
        if (one - other) % count not in (0, 1, count - 1)
    )


def among(layout: Layout, hurt: Collection[str]) -> frozenset[Direction]:
    """All that goes from one of them to another, and to and from clients."""
    return _both(hurt, hurt) | from_clients(layout, hurt)


def cut_off(layout: Layout, directions: Collection[Direction]) -> set[str]:
    """The nodes that can't take part in a majority: with too few of their group they can talk."""

    def reached(node: NodeLayout) -> int:
        return sum(
            not {(node.name, peer.name), (peer.name, node.name)} & {*directions}
            for peer in layout.group(node.broker)
        )

    return {
        node.name for node in layout.nodes if 2 * reached(node) <= len(layout.group(node.broker))
    }
