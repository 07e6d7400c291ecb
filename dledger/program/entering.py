"""How a command begins: its module is imported in here, so that Ctrl-C meanwhile ends it in order.

The imports of a command take a second and more, in which its own `main` can't say yet that it was
interrupted. While they run nothing needs to be tidied up, and an exception could be taken for a
library that is missing: so the process ends at once. So it does when `main` is through, while
Python ends.

Imports nothing that takes time, and neither do the packages on the way here: an interrupt before
`enter` meets Python's own start, which prints a traceback.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from dledger.program.extras import Extra

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def enter(name: str, module: str, extra: Extra) -> None:
    """Run `main` of a command's module. Ctrl-C ends it with status 130 and without a traceback; a
    package of the `extra` that is not installed, with status 2 and what to install."""
    before = signal.getsignal(signal.SIGINT)
    answers = before is signal.default_int_handler  # a job in the background has it ignored

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, _line(name).encode())
        os._exit(EXIT_INTERRUPTED)

    if answers:
        signal.signal(signal.SIGINT, end)
    try:
        from importlib import import_module  # noqa: PLC0415 - Ctrl-C is seen to now

        main = import_module(module).main
        signal.signal(signal.SIGINT, before)
        main()
    except KeyboardInterrupt:
        sys.stderr.write(_line(name))
        sys.exit(EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        from dledger.program.extras import PACKAGES, advice  # noqa: PLC0415 - see above

        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES[extra]:
            raise
        sys.stderr.write(f"{name}: {advice(name, extra, [missing])}\n")
        sys.exit(EXIT_USAGE)
    finally:
        if answers:
            signal.signal(signal.SIGINT, end)


def _line(name: str) -> str:
    return f"{name}: interrupted\n"
