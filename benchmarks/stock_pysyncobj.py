"""A control for `benchmarks/ledger`: the same load on PySyncObj as it is, with its own journal.

One node of three. Nothing of dledger is imported: the library runs with its defaults, its sockets,
its thread, its pickles, and its journal, which is never synced. So it stands beside our `async`.

    python benchmarks/stock_pysyncobj.py NODE PORTS FOLDER SECONDS SHAPES

Ports are separated by commas, shapes (bytes x outstanding) too: `1024x64,65536x8`. The leader
prints one line of JSON for each shape.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

SETTLE_S = 0.5
SHAPE_TIMEOUT_S = 30.0


class Log(SyncObj):  # type: ignore[misc]
    """A replicated log whose entries mean nothing."""

    @replicated  # type: ignore[untyped-decorator]
    def put(self, body: bytes) -> None:
        """Replicate an entry, and drop it."""


class Load:
    """Appends under way; each answer, given in the library's thread, begins the next append."""

    def __init__(self, log: Log, size: int, outstanding: int) -> None:
        self._log = log
        self._body = os.urandom(size)
        self._in_flight = outstanding
        self._idle = threading.Event()
        self.count = self.failed = 0
        self.stopping = False
        for _ in range(outstanding):
            self._go()

    def _go(self) -> None:
        self._log.put(self._body, callback=self._done)

    def _done(self, _: object, error: int) -> None:
        self.count += error == FAIL_REASON.SUCCESS
        self.failed += error != FAIL_REASON.SUCCESS
        if not self.stopping:
            self._go()
            return
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()

    def stop(self) -> None:
        """Begin no more appends, and wait for those under way."""
        self.stopping = True
        if not self._idle.wait(SHAPE_TIMEOUT_S):
            raise SystemExit(f"{self._in_flight} appends are not answered")


def measure(log: Log, size: int, outstanding: int, seconds: float) -> dict[str, Any]:
    """Figures of appends of this size, `outstanding` at a time, over `seconds`."""
    load = Load(log, size, outstanding)
    time.sleep(SETTLE_S)
    count, began = load.count, time.perf_counter()
    time.sleep(seconds)
    rate = (load.count - count) / (time.perf_counter() - began)
    load.stop()
    return {
        "size": size,
        "outstanding": outstanding,
        "entries_per_s": rate,
        "failed": load.failed,
    }


def main() -> None:
    """Join the group; measure if this node leads."""
    number, ports, folder, seconds = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
    addresses = [f"127.0.0.1:{port}" for port in ports.split(",")]
    shapes = [tuple(map(int, shape.split("x"))) for shape in sys.argv[5].split(",")]
    own = addresses.pop(number)
    # Defaults, but for the wait between attempts to connect, which only delays the start.
    config = SyncObjConf(journalFile=f"{folder}/{number}.journal", connectionRetryTime=0.2)
    log = Log(own, addresses, config)
    while not log.isReady() or log.getStatus()["leader"] is None:
        time.sleep(0.05)
    time.sleep(SETTLE_S)
    if str(log.getStatus()["leader"]) != own:
        time.sleep(3600)
    for size, outstanding in shapes:
        print(json.dumps(measure(log, size, outstanding, seconds)), flush=True)


if __name__ == "__main__":
    main()
