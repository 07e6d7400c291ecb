"""Processes are known by pid and start time, and end for certain."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import msgspec

from mqchaos.cluster.processes import Process, free_ports, kill, port_is_free, stop


def sleeper(code: str = "import time; print(1, flush=True); time.sleep(60)") -> Process:
    """A process of ours that runs and has said so."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
    child.returncode = 0  # from here on it is known by its pid alone
    return Process.of(child.pid)


def test_a_process_is_alive_until_it_is_killed() -> None:
    """A killed process is gone after `kill` returns, zombie included."""
    process = sleeper()
    assert process.alive

    kill([process])

    assert not process.alive


def test_a_pid_that_another_process_has_now_is_not_ours() -> None:
    """The start time tells a process from a stranger with its number."""
    stranger = msgspec.structs.replace(Process.of(os.getpid()), started_ticks=1)

    assert not stranger.alive


def test_a_process_that_ignores_sigterm_is_killed_at_the_deadline() -> None:
    """A process that ignores SIGTERM is killed at the deadline, and named."""
    ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); "
    stubborn = sleeper(ignore + "print(1, flush=True); time.sleep(60)")
    willing = sleeper()

    assert stop([stubborn, willing], timeout_s=0.3) == [stubborn]
    assert not stubborn.alive
    assert not willing.alive


def test_free_ports_are_different_and_can_be_listened_on() -> None:
    """Free ports are distinct, can be listened on, and are below the ephemeral range."""
    ports = free_ports(8)

    assert len(set(ports)) == 8
    assert all(12_000 <= port < 32_768 and port_is_free(port) for port in ports)


def test_a_port_in_use_is_not_free() -> None:
    """A listening socket holds its port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        assert not port_is_free(listener.getsockname()[1])
