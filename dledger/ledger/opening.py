"""Opening of a replica, whose damaged log is first repaired by the leader of its group. A damaged
log is first repaired by the leader of its group.

This happens at the start of a process, and when a running node finds rot. Then it drops everything
in memory except the state machine, and opens its files again. Until the log is whole this node only
tells its peers what it lacks. The engine, which votes and acknowledges, does not exist before that.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from dledger import limits
from dledger.errors import CorruptLog, DledgerError, FrameError, Rot
from dledger.ledger.config import LedgerConfig
from dledger.ledger.stepping import peer_network
from dledger.log.disk import Disk
from dledger.log.hard_state import HardStateFile
from dledger.log.recovery.repair import DamagedLog, LogRepair, Place
from dledger.log.recovery.startup import open_log
from dledger.log.store import SegmentedLog
from dledger.observe import get_logger
from dledger.raft.limits import REPAIR_ASK_AGAIN_S
from dledger.raft.membership.configuration import initial
from dledger.raft.membership.members import Members, last_saved, open_members
from dledger.raft.messages import Given, Lacking, PeerMessage, encode_message
from dledger.raft.network.links import LinkOwner, SocketLink
from dledger.raft.replication.repair import Asking
from dledger.world import steady_s

log = get_logger("dledger.ledger.opening")

Connect = Callable[[LinkOwner], Awaitable[None]]
"""Keeps connections to all peers, until it is cancelled."""


async def open_replica(
    config: LedgerConfig, hard_state: HardStateFile, listener: socket.socket
) -> tuple[SegmentedLog, Members]:
    """Open the log and the members in a replica's folder, after a stop or a fence.

    If the log is damaged, first wait until a leader has repaired it (`LedgerConfig.repair`).
    Raises CorruptLog, StorageError, OSError.
    """
    folder, disk = config.directory / "log", Disk()
    by_config = initial(config.peers, config.services)
    known = last_saved(folder, disk, by_config)

    async def connect(owner: LinkOwner) -> None:
        await peer_network(config, owner).run(listener, known)

    repairs = connect if config.repair and len(known.members) > 1 else None
    segment_bytes, doubted = config.segment_bytes, set[int]()
    while True:
        store = await open_whole_log(config.node_id, folder, segment_bytes, hard_state, repairs)
        try:
            return store, open_members(folder, disk, store, by_config)
        except Rot as rot:  # in a segment that the start took as the checkpoint had it
            store.checkpoints.doubt(rot)
            store.close_files()
            if rot.base_position in doubted:
                raise
            doubted.add(rot.base_position)


async def open_whole_log(
    node_id: str,
    folder: Path,
    segment_bytes: int,
    hard_state: HardStateFile,
    connect: Connect | None,
) -> SegmentedLog:
    """Open the log in `folder`. Without `connect` nothing is repaired.

    Raises CorruptLog (DamagedLog) for what can't be repaired, StorageError, OSError.
    """
    committed_end: int | None = None
    repaired: Place | None = None
    while True:
        started_at = steady_s()
        try:
            store, recovery = open_log(folder, segment_bytes, committed_end=committed_end)
            break
        except DamagedLog as damage:
            if connect is None:
                raise
            if damage.place == repaired:
                raise CorruptLog(
                    f"{damage} It was repaired and is damaged again: the disk is failing."
                ) from damage
            log.warning("log damaged", node=node_id, reason=str(damage))
            repaired = damage.place
            repair = LogRepair(folder, segment_bytes, Disk(), damage)
            asking = Asking(repair, hard_state)
            committed_end = await _repair(node_id, asking, connect)
            log.warning(
                "log repaired",
                node=node_id,
                first_index=damage.place.next_index,
                entries_written=repair.written,
                bytes_unreadable=repair.lost_bytes,
                commit_index=committed_end,
            )
    log.info(
        "recovered",
        node=node_id,
        last_index=store.last_index,
        end_position=store.end_position,
        entries_checked=recovery.entries_checked,
        torn_bytes=recovery.torn_bytes,
        torn_because=recovery.torn_because,
        seconds=round(steady_s() - started_at, 3),
    )
    return store


async def _repair(node_id: str, asking: Asking, connect: Connect) -> int:
    """Repair one damaged range; returns the leader's commit index."""
    owner = _Repairing(node_id, asking)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect, owner)
        nursery.start_soon(owner.ask)
        await owner.over.wait()
        nursery.cancel_scope.cancel()
    if isinstance(owner.outcome, int):
        return owner.outcome
    raise owner.outcome


class _Repairing:
    """The owner of the links during a repair, while this node does nothing else."""

    def __init__(self, node_id: str, asking: Asking) -> None:
        self.over = trio.Event()
        self.outcome: int | DledgerError | OSError
        self._node_id = node_id
        self._asking = asking
        self._links: dict[str, SocketLink] = {}
        self._asked_at = float("-inf")

    async def ask(self) -> None:
        """Ask every connected peer, again if no answer comes; only the leader answers."""
        waiting_since = said_at = trio.current_time()
        said_of = self._asking.wanted_index
        while True:
            if trio.current_time() >= self._asked_at + REPAIR_ASK_AGAIN_S:
                for link in self._links.values():
                    self._ask(link, self._asking.question)
            await trio.sleep(REPAIR_ASK_AGAIN_S / 2)
            now = trio.current_time()
            if now - said_at > limits.STILL_WAITING_S:
                stuck = said_of == self._asking.wanted_index
                said_at, said_of = now, self._asking.wanted_index
                log.warning(
                    "no leader to repair the log" if stuck else "the repair of the log goes on",
                    node=self._node_id,
                    wanted_index=said_of,
                    connected=len(self._links),
                    seconds=round(now - waiting_since),
                )

    def _ask(self, link: SocketLink, question: Lacking) -> None:
        self._asked_at = trio.current_time()
        link.send(encode_message(question))

    # -- LinkOwner -------------------------------------------------------------------------

    def link_up(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer stands."""
        self._links[node_id] = link
        self._ask(link, self._asking.question)

    def link_down(self, node_id: str, link: SocketLink) -> None:
        """Forget the link of a connection that broke."""
        if self._links.get(node_id) is link:
            del self._links[node_id]

    def link_drained(self, node_id: str) -> None:
        """Ignore the end of a queue of frames, as nothing waits for it."""

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        """Take entries that a leader gives, and ignore everything else."""
        if not isinstance(message, Given) or self.over.is_set():
            return
        try:
            outcome = self._asking.take(message)
        except FrameError:
            raise  # the link's fault: it is closed
        except (DledgerError, OSError) as error:
            self._end(error)
            return
        if isinstance(outcome, Lacking):
            self._ask(link, outcome)
        elif outcome is not None:
            self._end(outcome)

    def _end(self, outcome: int | DledgerError | OSError) -> None:
        self.outcome = outcome
        self.over.set()

    def received_all(self) -> None:
        """Ignore the end of a run of messages, as nothing waits for it."""
