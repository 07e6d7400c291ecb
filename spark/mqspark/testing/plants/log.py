"""Faults planted in logs themselves, and in what is said of leaders and votes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.plants.content import acked
from mqspark.testing.small_runs import NODES, Entry, SmallRun

_SOON_NS: Final = 100


def changed(run: SmallRun, draw: random.Random) -> None:
    """A node has other bytes in an entry, and so another chain from there on."""
    ids = {a["id"] for a in run.of("ack")}
    unacked = [m.id for e in run.logs["n1"] for m in e.messages if m.id not in ids]
    victim = draw.choice(unacked) if unacked else acked(run, draw)["id"]
    run.change("n1", victim, body=b"another!")


def other_term(run: SmallRun, draw: random.Random) -> None:
    """A node has an entry from another term."""
    run.logs["n2"][1] = replace(run.logs["n2"][1], term=2)


def truncated(run: SmallRun, draw: random.Random) -> None:
    """A node lacks the end of the log."""
    del run.logs["n0"][-draw.randint(2, 4) :]


def fallen_term(run: SmallRun, draw: random.Random) -> None:
    """On all nodes an entry's term is below that of the one before."""
    for node in NODES:
        run.logs[node].append(Entry(1))


def left_out(run: SmallRun, draw: random.Random) -> None:
    """On all nodes an index is missing."""
    at = draw.randrange(2, len(run.logs["n0"]))
    for node in NODES:
        run.logs[node][at] = replace(run.logs[node][at], left_out=1)


def fallen_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node has an old term at the end of its log, which nobody was told of."""
    run.logs["n1"].append(Entry(1))


def two_leaders(run: SmallRun, draw: random.Random) -> None:
    """Two nodes served in one term."""
    lead = draw.choice(run.of("lead"))
    run.events.append({**lead, "node": "n2"})


def two_votes(run: SmallRun, draw: random.Random) -> None:
    """A node voted for another after a restart, in the same term."""
    vote = draw.choice(run.of("vote"))
    run.events.append({**vote, "t": vote["t"] + _SOON_NS, "vote": "n2"})


def forgotten_term(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term than it had known."""
    run.events.append({**run.of("vote", node="n1")[0], "t": run.of("vote")[-1]["t"] + _SOON_NS})


def empty_leader(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log lacked what had been acknowledged."""
    run.of("lead")[1]["end_position"] = min(a["position"] for a in run.of("ack"))
