"""The real broker in memory, and requests as clients make them: for tests of brokers and clients.

``memory``    :func:`memory_broker`: the broker's own code on a ledger in memory and a real socket;
              :func:`served`: with a connection to it
``replicas``  three replicas with real disks, logs and sockets, all in this process
``pictured``  what a picture keeps, as values
``leading``   what a leader appends, on a ledger in memory
``requests``  what producers, consumers and tools send, and what comes back, in a few words
"""

from __future__ import annotations

from mqbroker.testing.memory import MemoryBroker, memory_broker, served, until

__all__ = ["MemoryBroker", "memory_broker", "served", "until"]
