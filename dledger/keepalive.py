"""Connections whose other host has vanished without a word.

A machine without power, a route that is gone, a firewall that has forgotten: nobody sends an end or
a reset. By default the kernel repeats what is not acknowledged for a quarter of an hour, ever more
seldom, so that even after a short cut a connection may stay silent for as long again; and of one
that is idle it never learns. Here the kernel is told how long it may take (tcp(7)). It is another
matter than a server that is slow: its kernel acknowledges all the same.
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
