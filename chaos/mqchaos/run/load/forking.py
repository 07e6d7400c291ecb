"""A program that makes its client first and forks then: each child opens its copy.

So gunicorn with `--preload` and Celery's prefork do it, with what a module makes as it is imported.
The harness knows the program only: its parent hands the end of standard input on to the children,
and prints what they have done together. A child that fails makes the program fail.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio
from msgspec.structs import replace

from mqchaos.limits import WORKER_LINE_BYTES_MAX
from mqchaos.run.load.workload import Progress, TaskT, all_together, clients_of


class _Child(NamedTuple):
    """The parent's ends of a child's two pipes: the child's standard input, which never says
    anything, and its standard output."""

    pid: int
    stdin: int
    tells: int


def forked(task: TaskT) -> TaskT:
    """Fork the children of a task. Returns in each with its own; the parent follows them and ends.

    Call it outside any event loop, as both processes would share its selector.
    """
    children: list[_Child] = []
    for client in clients_of(task):
        stdin, tells = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            for other in children:
                os.close(other.stdin)
                os.close(other.tells)
            _become(stdin, tells)
            history = str(Path(task.history).with_name(f"{client}.jsonl"))
            return replace(task, client=client, history=history, forks=0)
        os.close(stdin[0])
        os.close(tells[1])
        children.append(_Child(pid, stdin[1], tells[0]))
    trio.run(_follow_all, children)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) for child in children]
    sys.exit(max(statuses, key=abs))


def _become(stdin: tuple[int, int], tells: tuple[int, int]) -> None:
    """In a child: read from one pipe, print to the other."""
    os.dup2(stdin[0], sys.stdin.fileno())
    os.dup2(tells[1], sys.stdout.fileno())
    for end in (*stdin, *tells):
        os.close(end)


async def _follow_all(children: list[_Child]) -> None:
    """Follow children until the last of them has closed its output."""
    said: dict[int, Progress] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_hand_on, children)
        async with trio.open_nursery() as following:
            for child in children:
                following.start_soon(_follow, child, children, said)
        nursery.cancel_scope.cancel()


async def end_of_stdin() -> None:
    """Wait until the harness closes our standard input, or has died."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some(4096):
            pass


async def _hand_on(children: list[_Child]) -> None:
    """The end of our standard input is the end of theirs."""
    await end_of_stdin()
    for child in children:
        os.close(child.stdin)


async def _follow(child: _Child, children: list[_Child], said: dict[int, Progress]) -> None:
    """Print the sums, from when each child has said something."""
    decoder, encode = msgspec.json.Decoder(Progress), msgspec.json.Encoder().encode
    buffered = b""
    async with trio.lowlevel.FdStream(child.tells) as output:
        async for chunk in output:
            *lines, buffered = (buffered + chunk).split(b"\n")
            if lines:
                said[child.pid] = decoder.decode(lines[-1])
            if lines and len(said) == len(children):
                sys.stdout.buffer.write(encode(all_together(said.values())) + b"\n")
                sys.stdout.buffer.flush()
            if len(buffered) > WORKER_LINE_BYTES_MAX:
                raise RuntimeError("a child printed a line without an end")
