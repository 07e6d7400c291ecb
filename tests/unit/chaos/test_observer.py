"""Observations of a cluster are noted once, with the moment before each question."""

from __future__ import annotations

from pathlib import Path

import pytest
from answers import group_info

from dledger.log.hard_state import HardState, encode_slot
from mqchaos.cluster import layout
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import NodeState
from mqchaos.history.events import HistoryWriter, Lead, Vote
from mqchaos.history.reading import read_history
from mqchaos.run.observer import Observer
from mqclient.connection.peers import PeerPool

SLOT_BYTES = 512
PORTS = list(range(13_000, 13_000 + layout.ports_needed(nodes=3, groups=1, namesrvs=1)))


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.create(tmp_path / "cluster", layout.plan(PORTS))


def state(cluster: Cluster, number: int, role: str, term: int) -> NodeState:
    node = cluster.layout.group("broker-a")[number]
    info = group_info(9, node_id=node.node, role=role, term=term, end_position=4096)
    return NodeState(node, 1, info)


def test_every_node_that_claims_to_lead_is_noted_once_a_term(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two that claim one term are both in the history, which is what a judge must see."""
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        observer = Observer(cluster, PeerPool(), history)
        for began in (5, 6):
            states = [state(cluster, 0, "leader", 3), state(cluster, 1, "leader", 3)]
            observer.note_leaders([*states, state(cluster, 2, "follower", 3)], began)
        observer.note_leaders([state(cluster, 0, "leader", 4)], 7)

    noted = [event for event in read_history(tmp_path / "h.jsonl") if isinstance(event, Lead)]
    assert [(lead.node, lead.term, lead.began, lead.end_position) for lead in noted] == [
        ("n0", 3, 5, 4096),
        ("n1", 3, 5, 4096),
        ("n0", 4, 7, 4096),
    ]


def test_votes_are_read_from_the_nodes_files(cluster: Cluster, tmp_path: Path) -> None:
    """Votes are read from both slots, the older first; a missing or torn one is no vote."""
    nodes = cluster.layout.group("broker-a")
    for node in nodes[:2]:
        (cluster.store(node) / "log").mkdir(parents=True)
    slots = [encode_slot(2, HardState(4, None, True)), encode_slot(1, HardState(3, "n1", True))]
    raw = b"".join(slot.ljust(SLOT_BYTES, b"\0") for slot in slots)
    (cluster.store(nodes[0]) / "log" / "term").write_bytes(raw)
    (cluster.store(nodes[1]) / "log" / "term").write_bytes(b"\1" * 1024)
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        observer = Observer(cluster, PeerPool(), history)
        observer.note_votes()
        observer.note_votes()

    noted = [event for event in read_history(tmp_path / "h.jsonl") if isinstance(event, Vote)]
    assert [(vote.node, vote.term, vote.vote) for vote in noted] == [
        ("n0", 3, "n1"),
        ("n0", 4, None),
    ]
