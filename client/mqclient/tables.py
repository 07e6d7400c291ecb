"""numpy, which handles many messages at once, and its first import.

The import takes longer than a whole program that sends one message should take, and far longer than
a turn of an event loop may. So it begins when many messages come together for the first time, in a
thread; meanwhile they are handled one by one, or, where that can wait, the caller waits. Without
numpy all are handled so, and only what is asked for by column can't be had.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from threading import Thread

from dledger.program.extras import require
from dledger.world import world


def _import() -> None:
    with suppress(ModuleNotFoundError):
        import_module("numpy")


_importing = Thread(target=_import, name="import numpy", daemon=True)


def at_hand() -> bool:
    """Whether numpy is imported; if not, that begins."""
    if _is_imported():
        return True
    if _importing.ident is None:
        _importing.start()
    return False


def needed(what: str) -> None:
    """Raises ConfigError if numpy is not installed, without which there is no `what`."""
    require(what, "bulk")


async def bring() -> None:
    """Import numpy, while others go on."""
    if not at_hand():
        await world().in_thread(_importing.join)


def _is_imported() -> bool:
    module = sys.modules.get("numpy")
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _finish() -> None:
    """Before a fork: a module that is half imported would stay so in the child."""
    if _importing.is_alive():
        _importing.join()


os.register_at_fork(before=_finish)
