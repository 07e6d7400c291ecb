"""The foundation: a replicated log that can be trusted, and the wire that RocketMQ speaks.

General layout
--------------
``remoting/``  the RocketMQ Remoting protocol: commands, headers, bodies, message records (sans-I/O)
``net/``       its connections: a trio server, and a client side for trio and asyncio
``log/``       the log on disk: segments, checksums, recovery
``raft/``      PySyncObj behind our journal and transport
``ledger``     :func:`open_ledger`: one node of a replicated log, ready to use;
               ``opening`` its log, ``stepping`` its engine, ``upkeep`` for its files
``testing/``   a log in memory, simulated networks and clocks
``proof``      two servers prove to each other that they know one ``secret``; ``signing`` requests
``limits``     every bound, ``errors`` every error, ``config`` TOML, ``observe`` structlog

Nothing in here imports the broker, the name server, the client or anything above them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.errors import (
        AppendError,
        Busy,
        CorruptLog,
        DledgerError,
        Fenced,
        NotLeader,
        OutcomeUnknown,
        StorageError,
        TooLarge,
    )
    from dledger.ledger import Ledger, LedgerConfig, LedgerStatus, open_ledger
    from dledger.log.entry import Draft, Entry, Kind
    from dledger.raft.engine import Appended, StateMachine
    from dledger.raft.library import Timing

__all__ = [
    "AppendError",
    "Appended",
    "Busy",
    "CorruptLog",
    "DledgerError",
    "Draft",
    "Entry",
    "Fenced",
    "Kind",
    "Ledger",
    "LedgerConfig",
    "LedgerStatus",
    "NotLeader",
    "OutcomeUnknown",
    "StateMachine",
    "StorageError",
    "Timing",
    "TooLarge",
    "open_ledger",
]

_HOMES = {
    "errors": "AppendError Busy CorruptLog DledgerError Fenced NotLeader OutcomeUnknown "
    "StorageError TooLarge",
    "ledger": "Ledger LedgerConfig LedgerStatus open_ledger",
    "log.entry": "Draft Entry Kind",
    "raft.engine": "Appended StateMachine",
    "raft.library": "Timing",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is used: a client of the wire needs no Raft, and starts faster."""
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"dledger.{module}"), name)
    raise AttributeError(f"module 'dledger' has no attribute {name!r}")
