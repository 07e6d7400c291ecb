"""The foundation: a replicated log that can be trusted, and the wire that RocketMQ speaks.

Layout
------
``ledger``    one node of a replicated log, ready to use: :func:`open_ledger`
``raft``      PySyncObj behind our journal and transport
``log``       the log on disk: segments, checksums, recovery
``net``       connections: a trio server, and a client side for trio and asyncio
``remoting``  the RocketMQ Remoting protocol: commands, headers, bodies, records; no I/O
``trust``     two servers prove to each other that they know one secret; signed requests
``tls``       sockets that encrypt, and the certificates for it
``verdict``   what an audit found: as data, as a page, as XML for CI
``metrics``   figures of a server over HTTP, for Prometheus and supervisors
``program``   what every program has: config, console, a clear end
``testing``   a log in memory, simulated networks and clocks, contracts, planted bugs
``errors``    every error that is raised here (pure)
``limits``    every bound (pure)
``addresses``  hosts, ports, and "host:port": what may be dialled (pure)
``version``   of all packages
``checksum``  CRC-32 (pure)
``buffers``   what counts as bytes
``loading``   public names of a package, loaded when they are first used
``slices``    long work, a few milliseconds at a time
``failpoints``  named places where a chaos run may stop the process (pure)
``observe``   logging as a library does it: events with values
``files``     their kinds: only regular ones are read; files that are their user's alone
``keepalive``  connections whose other host is gone without a word
``worker``    a thread that does one piece of work after another
``world``     the machine's clocks, threads, sockets and names; a test may have others

Nothing in here imports the broker, the name server, the client or anything above them.
"""

from __future__ import annotations

from dledger.loading import listed, when_used
from dledger.version import __version__ as __version__

# Commands come through here first: until they see to Ctrl-C nothing that takes time is imported.
TYPE_CHECKING = False
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
    from dledger.ledger.config import LedgerConfig, LedgerStatus
    from dledger.ledger.ledger import Ledger, open_ledger
    from dledger.log.entry import Draft, Entry, Kind
    from dledger.raft.appends import Appended
    from dledger.raft.replication.state_machine import StateMachine
    from dledger.raft.roles import Timing

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
    "dledger.errors": "AppendError Busy CorruptLog DledgerError Fenced NotLeader OutcomeUnknown "
    "StorageError TooLarge",
    "dledger.ledger.config": "LedgerConfig LedgerStatus",
    "dledger.ledger.ledger": "Ledger open_ledger",
    "dledger.log.entry": "Draft Entry Kind",
    "dledger.raft.appends": "Appended",
    "dledger.raft.replication.applying": "StateMachine",
    "dledger.raft.roles": "Timing",
}

__getattr__ = when_used(__name__, _HOMES)  # a client of the wire needs no Raft, and starts faster
__dir__ = listed(__name__)
