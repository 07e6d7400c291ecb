"""The parts that the commands of this package share: how they end, and how they print errors.

A Ctrl-C or a SIGTERM cancels the work, so that every clean-up runs. Of errors that a person can act
on, such as a full disk, only the text is printed; any other error is a bug and shows its traceback.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence

import cyclopts
import trio

from dledger.errors import ConfigError, leaves
from dledger.program.cores import leave_no_core
from dledger.program.ending import BY_INPUT, sentence
from dledger.program.logs import configure_logging

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILED = 2
INTERRUPTED = 128


def run_command(work: Callable[[], Awaitable[int]]) -> int:
    """Do `work` and return its exit status; FAILED, with a message, if it raised a known error."""
    configure_logging("console", "warning")
    try:
        return trio.run(_until_interrupted, work)
    except* BY_INPUT as group:
        for error in dict.fromkeys(sentence(error) for error in leaves(group)):
            print(error, file=sys.stderr)
    return FAILED


def run_app(app: cyclopts.App, arguments: Sequence[str] | None) -> int:
    """Run a command with its arguments; returns its exit status."""
    if arguments is None:
        leave_no_core(mark=False)  # The way to a link's socket leads through /proc/self/fd.
    try:
        status: int | None = app(arguments, print_error=False, exit_on_error=False)
    except cyclopts.CycloptsError as error:
        sys.stderr.write(f"{app.name[0]}: {sentence(error)} (--help shows the options)\n")
        return FAILED
    except (*BY_INPUT, ValueError) as error:
        sys.stderr.write(f"{app.name[0]}: {sentence(error)}\n")
        return FAILED
    return status or 0


def refuse_outside(name: str, value: float, least: float, most: float) -> None:
    """Raises ConfigError for an option's value that can't be."""
    if not least <= value <= most:
        raise ConfigError(f"--{name} is {value}; it must be from {least} to {most}")


async def _until_interrupted(work: Callable[[], Awaitable[int]]) -> int:
    """The work's status, or INTERRUPTED + the number of the signal that ended it.

    Further signals are ignored while the work cleans up, which takes a bounded time.
    """
    status = 0

    async def watch() -> None:
        nonlocal status
        async for number in signals:
            status = status or INTERRUPTED + number
            nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(*ENDING) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            status = await work()
            nursery.cancel_scope.cancel()
    if status > INTERRUPTED:
        name = signal.Signals(status - INTERRUPTED).name
        print(f"ended by {name}; all that was started is stopped", file=sys.stderr)
    return status
