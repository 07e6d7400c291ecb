"""Entries that a leading broker appends, on a ledger in memory: for tests of the replicated
state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dledger.log.entry import HEADER_BYTES, Entry, Kind
from dledger.log.scanning.scan import scan_entries
from dledger.remoting.message import host_bytes
from dledger.slices import drained
from dledger.testing.local import LocalLedger
from mqbroker.leader.appending.drafts import NewRecord, RecordsDraft
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.assignments import Assignments
from mqbroker.state import control
from mqbroker.state.machine import Machine

HOST = host_bytes("127.0.0.1", 10911)


def raise_it(fault: Exception) -> None:
    """A fault of the broker is the test's."""
    raise fault


def save(machine: Machine) -> None:
    """Save a machine's state, as the process does."""
    snapshot = drained(machine.begin_snapshot())
    snapshot.write()
    machine.saved(snapshot)


def serve(store: Path, segment_bytes: int) -> None:
    """Apply all that a store's log has, and save the state."""
    machine = Machine(store)
    machine.restore()
    for path in sorted((store / "log").glob("*.seg")):
        raw, base = memoryview(path.read_bytes()), int(path.stem)
        for found in scan_entries(raw, base, segment_bytes, None, verify=False):
            assert found.header is not None
            index, term, kind = found.header.index, found.header.term, found.header.kind
            body = raw[found.offset + HEADER_BYTES : found.offset + found.header.size]
            machine.apply(Entry(index, term, kind, base + found.offset, body))
    save(machine)
    machine.close()


class LeadingMachine:
    """A machine, its ledger, its assignments and what appends to it.

    `clock_ms` is the leader's wall clock, `clock_s` one that never jumps.

    What is appended is applied at once with `auto`, else by `ledger.commit`.
    """

    def __init__(
        self,
        directory: Path,
        clock_ms: Callable[[], int] = lambda: 1000,
        *,
        clock_s: Callable[[], float] = lambda: 0.0,
        auto: bool = True,
    ) -> None:
        self.machine = Machine(directory)
        self.machine.restore()
        self.ledger = LocalLedger(self.machine, auto=auto)
        self.assignments = Assignments(self.machine, clock_ms, clock_s)
        self.appending = Entries(self.ledger, self.assignments, raise_it)

    def append(self, topic: str, queue_id: int, records: Sequence[NewRecord]) -> None:
        """Append an entry of messages, all for one queue."""
        runs = [(queue_id, len(records))]
        draft = RecordsDraft(records, topic, runs, self.assignments, HOST)
        self.ledger.append_nowait(draft, Kind.MESSAGES, lambda _: None)

    def change(self, change: control.Control) -> None:
        """Append an entry that changes topics, groups, offsets or locks."""
        body = control.encode_control(change)
        self.ledger.append_nowait(body, Kind.CONTROL, lambda _: None)
        if isinstance(change, control.DeleteTopic):
            self.assignments.forget(change.topic)
