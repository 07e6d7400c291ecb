"""numpy, which handles many messages at once, and its first import.

The import takes longer than a whole program that sends one message should take, and far longer than
a turn of an event loop may. So it begins when many messages come together for the first time, in a
thread; meanwhile they are handled one by one, or, where that can wait, the caller waits.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import Thread

from dledger.world import world

_importing = Thread(target=import_module, args=["numpy"], name="import numpy", daemon=True)


def at_hand() -> bool:
    """Whether numpy is imported; if not, that begins."""
    if _is_imported():
        return True
    if _importing.ident is None:
        _importing.start()
    return False


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
