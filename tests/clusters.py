"""Clusters of real processes for a test: on free ports, and gone when the block is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec.structs import replace

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports


def new_cluster(
    folder: Path,
    nodes: int = 3,
    groups: int = 1,
    namesrvs: int = 1,
    *,
    settings: Mapping[str, object] | None = None,
    **layout: Any,
) -> Cluster:
    """A cluster in `folder` that is not started.

    `settings` are further ones of each broker, `layout` further fields of its `Layout`.
    """
    planned = plan(free_ports(ports_needed(nodes, groups, namesrvs)), nodes, groups, namesrvs)
    cluster = Cluster.create(folder / "cluster", replace(planned, **layout))
    for node in cluster.layout.nodes:
        with (cluster.folder(node.name) / "broker.toml").open("a") as config:
            config.writelines(f"{key} = {value!r}\n" for key, value in (settings or {}).items())
    return cluster


@contextmanager
def serving_cluster(folder: Path, *sizes: int, **options: Any) -> Iterator[Cluster]:
    """A cluster as of `new_cluster`, once it serves."""
    with new_cluster(folder, *sizes, **options).running() as cluster:
        trio.run(serving, cluster)
        yield cluster
