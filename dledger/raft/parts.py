"""The parts that the engine's components share: the peers, and the data that this node keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.log.hard_state import HardStateFile
    from dledger.log.store import SegmentedLog
    from dledger.raft.library.adapter import Core
    from dledger.raft.library.transport import PeerTransport
    from dledger.raft.membership.members import Members
    from dledger.raft.peers import Peers
    from dledger.raft.replication.base_state import BaseState
    from dledger.raft.replication.state_machine import StateMachine


@dataclass(frozen=True, slots=True)
class Consensus:
    """Raft's own state, in the library, and the peers that it speaks with."""

    core: Core
    transport: PeerTransport
    peers: Peers


@dataclass(frozen=True, slots=True)
class Replica:
    """The data that this node keeps on its disk: the log, term, vote and eligibility, the members;
    and whether the state before the log is there."""

    log: SegmentedLog
    hard_state: HardStateFile
    members: Members
    machine: StateMachine
    base_state: BaseState
