"""TCP keepalive and user timeout: they end a connection whose other host does not answer any more.

After a power failure, or where a route or a firewall drops packets, no FIN and no RST arrives. By
default the kernel sends unacknowledged data again for a quarter of an hour, at growing intervals,
so a connection may stay silent long after a short interruption. If nothing is sent, the kernel
never notices. These options bound both times (tcp(7)). A slow server is not ended by them: its
kernel acknowledges.
"""

from __future__ import annotations

import socket
from contextlib import suppress


def end_unacknowledged(sock: socket.socket, after_s: float) -> None:
    """End a connection if what is sent is not acknowledged, or not taken, for so long."""
    _set(sock, socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", round(after_s * 1000))


def probe_idle(sock: socket.socket, after_s: float, every_s: float) -> None:
    """Probe a connection on which nothing comes, so that its host has something to acknowledge."""
    _set(sock, socket.IPPROTO_TCP, "TCP_KEEPIDLE", round(after_s))
    _set(sock, socket.IPPROTO_TCP, "TCP_KEEPINTVL", round(every_s))
    _set(sock, socket.SOL_SOCKET, "SO_KEEPALIVE", 1)


def _set(sock: socket.socket, level: int, name: str, value: int) -> None:
    """Not every system has every option, or lets it be set on a connection that was reset."""
    option = getattr(socket, name, None)
    if option is not None:
        with suppress(OSError):
            sock.setsockopt(level, option, value)
