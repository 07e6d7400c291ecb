"""Sockets for the Remoting protocol: servers under trio, peers under trio and asyncio.

``link``        what both ends have: a non-blocking socket, a frame decoder, a bounded send buffer
``listening``   accepts connections
``server``      serves connections, and bounds what each may cost
``connection``  one accepted connection: its requests, its answers, its end
``serving``     which method answers a code, what it needs, and who may ask
``peer``        the asking end: matches responses to requests
``auditing``    notes who changes what, and who is refused
``proving``     proves to a server that both know the cluster's secret
``quota``       how many connections, from where, and how much memory is kept for them (pure)
``turns``       shares the event loop, so that costly requests do not delay others
``lanes``       keeps requests of a connection in order, though some take many turns
``watchdog``    logs a turn that takes too long, with what ran
``faults``      unexpected exceptions: logged with the request, and counted
``machine``     the machine's memory and descriptors

The send buffer is written once per turn of the event loop, however many commands were put into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.loading import listed, when_used
from dledger.net.peer import Peer, connect_peer

if TYPE_CHECKING:
    from dledger.net.connection import Connection, Handler
    from dledger.net.faults import Faults
    from dledger.net.server import ServerLimits, serve_remoting

__all__ = [
    "Connection",
    "Faults",
    "Handler",
    "Peer",
    "ServerLimits",
    "connect_peer",
    "serve_remoting",
]

_HOMES = {
    "dledger.net.connection": "Connection Handler",
    "dledger.net.faults": "Faults",
    "dledger.net.server": "ServerLimits serve_remoting",
}

__getattr__ = when_used(__name__, _HOMES)  # a client under asyncio needs no trio
__dir__ = listed(__name__)
