"""Objects that a forked process can't use: what is open when a process forks stays behind.

A fork copies memory and descriptors, and none of the threads that work with them. A client that is
open has connections that both processes would read, an identity that both would use, and an event
loop that runs in one of them. So the copy is marked in the child, before any code of the
application runs there: each call on it raises at once. Its descriptors are closed there, or servers
would take a process that died for alive as long as a child of it lives.

That costs nothing where no fork is: nobody asks for the process's number.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Rooted(Protocol):
    """An object that belongs to the process in which it was opened."""

    def stay_behind(self) -> None:
        """Give up this copy, and tell nobody: this is a child, right after the fork."""


_rooted: WeakSet[Rooted] = WeakSet()


def root_here(thing: Rooted) -> None:
    """Note what was opened in this process."""
    _rooted.add(thing)


def uproot(thing: Rooted) -> None:
    """Forget a client that is closed."""
    _rooted.discard(thing)


def forked_from(opened_in: int) -> str:
    """The fault of an object that was open in another process, and the remedy."""
    return (
        f"was opened in process {opened_in}, and this is its fork {os.getpid()}: connections and "
        "threads stay with the process that has them. Make and open one in each process, after the "
        "fork (gunicorn: post_fork, Celery: worker_process_init, multiprocessing: in the target)"
    )


def _in_the_child() -> None:
    things = [*_rooted]
    _rooted.clear()
    for thing in things:
        thing.stay_behind()


os.register_at_fork(after_in_child=_in_the_child)
