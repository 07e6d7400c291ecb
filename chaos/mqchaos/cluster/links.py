"""The links of a cluster: who dials whom, where the proxy listens for it, and what is behind.

The file is written with the cluster and read by the proxy when it starts. Its address is the only
thing that tells the proxy who dials, so each dialler has one of its own for each server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from mqchaos.cluster.layout import CLIENTS, HOST, Layout

LINKS_FILE = "links.json"


class Link(msgspec.Struct, frozen=True):
    """Connections from `source` to `target` come to `listen`, and go on to `connect`."""

    source: str
    target: str
    listen: tuple[str, int]
    connect: tuple[str, int]


def links(layout: Layout) -> Iterator[Link]:
    """All links of a cluster whose layout has a network."""

    def link(source: str, target: str, port: int) -> Link:
        return Link(source, target, (layout.host(source, target), port), (HOST, port))

    for node in layout.nodes:
        yield link(CLIENTS, node.name, node.port)
        for peer in layout.group(node.broker):
            if peer != node:
                yield link(node.name, peer.name, peer.raft_port)
    for server in layout.namesrvs:
        for source in [CLIENTS, *(node.name for node in layout.nodes)]:
            yield link(source, server.name, server.port)


def write_links(folder: Path, layout: Layout) -> None:
    """Write the links of a layout to the file that the proxy reads."""
    (folder / LINKS_FILE).write_bytes(msgspec.json.encode(list(links(layout))))


def read_links(folder: Path) -> list[Link]:
    """Read the links that `write_links` wrote to `folder`."""
    return msgspec.json.decode((folder / LINKS_FILE).read_bytes(), type=list[Link])
