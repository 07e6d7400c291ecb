"""Faults planted in logs themselves, and in what is said of leaders and votes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.plants.content import acked
from mqspark.testing.small_runs import NODES, Entry, SmallRun

PLANTS: Final = Plants[SmallRun]()

_SOON_NS: Final = 100


@PLANTS.fault(5, "changed")
def changed(run: SmallRun, draw: random.Random) -> None:
    """A node has other bytes in an entry, and so another chain from there on."""
    ids = {a["id"] for a in run.of("ack")}
    unacked = [m.id for e in run.logs["n1"] for m in e.messages if m.id not in ids]
    victim = draw.choice(unacked) if unacked else acked(run, draw)["id"]
    run.change("n1", victim, body=b"another!")


@PLANTS.fault(5, "changed")
def other_term(run: SmallRun, draw: random.Random) -> None:
    """A node has an entry from another term."""
    run.logs["n2"][1] = replace(run.logs["n2"][1], term=2)


@PLANTS.fault(13, "incomplete")
def truncated(run: SmallRun, draw: random.Random) -> None:
    """A node lacks the end of the log."""
    del run.logs["n0"][-draw.randint(2, 4) :]


@PLANTS.fault(5, "disordered")
def fallen_term(run: SmallRun, draw: random.Random) -> None:
    """On all nodes an entry's term is below that of the one before."""
    for node in NODES:
        run.logs[node].append(Entry(1))


@PLANTS.fault(5, "disordered")
def left_out(run: SmallRun, draw: random.Random) -> None:
    """On all nodes an index is missing."""
    at = draw.randrange(2, len(run.logs["n0"]))
    for node in NODES:
        run.logs[node][at] = replace(run.logs[node][at], left_out=1)


@PLANTS.fault(5, "disordered")
def fallen_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node has an old term at the end of its log, which no client knows of."""
    run.logs["n1"].append(Entry(1))


@PLANTS.fault(6, "two leaders")
def two_leaders(run: SmallRun, draw: random.Random) -> None:
    """Two nodes served in one term."""
    lead = draw.choice(run.of("lead"))
    run.repeat(lead, node="n2")


@PLANTS.fault(6, "two votes")
def two_votes(run: SmallRun, draw: random.Random) -> None:
    """A node voted for another after a restart, in the same term."""
    vote = draw.choice(run.of("vote"))
    run.repeat(vote, t=vote["t"] + _SOON_NS, vote="n2")


@PLANTS.fault(6, "forgotten")
def forgotten_term(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term than it had known."""
    run.repeat(run.of("vote", node="n1")[0], t=run.of("vote")[-1]["t"] + _SOON_NS)


@PLANTS.fault(7, "incomplete")
def empty_leader(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log lacked what had been acknowledged."""
    run.of("lead")[1]["end_position"] = min(a["position"] for a in run.of("ack"))


@PLANTS.innocent
def disk_taken_away(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term, for the harness had emptied its disk."""
    forgotten_term(run, draw)
    vote = run.events[-1]
    lost = {"kind": "fault", "fault": "wipe", "t": vote["t"] - _SOON_NS // 2}
    run.events.append({name: vote[name] for name in ("broker", "node")} | lost)
