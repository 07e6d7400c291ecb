"""A turn of a node: a step, and what it has decided, carried out in the order of its durability.

The part of the shell that all shells share, real or simulated. They differ in how they sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.failpoints import failpoint
from dledger.log.store import SegmentedLog
from dledger.raft.engine import RaftEngine
from dledger.raft.messages import encode_message
from dledger.raft.ready import Outgoing, Ready


def turn(engine: RaftEngine, begin_sync: Callable[[], None]) -> bool:
    """Do all that can be done now; returns whether another turn is due at once.

    `begin_sync` is called when there is something to sync. It may end the sync, too, if the disk is
    quick. Raises Fenced, Rot, CorruptLog, OSError: then this node must take no further part.
    """
    ready, log = engine.step(), engine.log
    write_and_send(ready, log)
    if ready.has_entries:
        begin_sync()
    for meanwhile in engine.apply(ready.commit_index):
        write_and_send(meanwhile, log)
    return ready.more or engine.has_more


def write_and_send(ready: Ready, log: SegmentedLog) -> None:
    """Hand entries to the kernel, and then send the messages. Raises Fenced, Rot."""
    if ready.has_entries:
        log.write_out()
    if ready.messages:
        send(ready.messages, log)


def send(messages: Sequence[Outgoing], log: SegmentedLog) -> None:
    """Send messages, with the entries that they carry. Raises Rot.

    Peers that are sent the same entries get the same object, so that it is checked and hashed once.
    """
    runs: dict[tuple[int, int], memoryview] = {}
    for each in messages:
        entries = each.entries
        if entries is None:
            each.link.send(encode_message(each.message))
            continue
        run = runs.get(entries)
        if run is None:
            run = runs[entries] = log.reader.checked_run_of(*entries)
        each.link.send(encode_message(each.message, run))
        failpoint("raft.sent")
