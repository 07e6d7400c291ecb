"""PySyncObj's journal, kept in our segmented log.

The library sees a list of `(command, index, term)`. Here a command is a light object that knows
only its length and its type byte: the library asks for no more. So bodies are never copied to the
heap, and memory does not grow with the log.

The library truncates everything after the entry that a leader's message builds on, even where it
matches. That lost committed entries. So here truncation is only noted: :meth:`deleteEntriesFrom`
does nothing, and :meth:`add` cuts when, and only when, an entry of another term stands at that
index.
"""

from __future__ import annotations

from dataclasses import replace
from typing import SupportsIndex

from dledger.errors import CorruptLog, StorageError
from dledger.failpoints import failpoint
from dledger.log.entry import Header, Kind, chain
from dledger.log.hard_state import HardStateFile
from dledger.log.store import SegmentedLog
from dledger.raft.library.adapter import COMMAND_NOOP, COMMAND_OPAQUE, Journal
from dledger.raft.library.seams import Members
from dledger.raft.messages import Copy

_TYPE_BYTES = {Kind.NOOP.value: bytes([COMMAND_NOOP])}
_OPAQUE_BYTE = bytes([COMMAND_OPAQUE])

LibraryEntry = tuple["Command", int, int]


class Command:
    """The part of an entry's body that the library sees: its length and its type byte."""

    __slots__ = ("kind", "length")

    def __init__(self, kind: int, length: int) -> None:
        self.kind = kind
        self.length = length

    def __len__(self) -> int:
        return self.length + 1

    def __getitem__(self, _: slice) -> bytes:
        return _TYPE_BYTES.get(self.kind, _OPAQUE_BYTE)


class LazySlice:
    """`journal[a:b]` without reading it."""

    __slots__ = ("_first", "_journal", "_last")

    def __init__(self, journal: LogJournal, first: int, last: int) -> None:
        self._journal = journal
        self._first = first
        self._last = last

    def __len__(self) -> int:
        return max(0, self._last - self._first + 1)

    def __getitem__(self, key: slice | int) -> LazySlice | LibraryEntry:
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            return LazySlice(self._journal, self._first + start, self._first + stop - 1)
        index = (self._first if key >= 0 else self._last + 1) + key
        if not self._first <= index <= self._last:
            raise IndexError(key)
        return self._journal.library_entry(index)


class LogJournal(Journal):  # type: ignore[misc]
    """The library's journal over a :class:`~dledger.log.store.SegmentedLog`."""

    def __init__(self, log: SegmentedLog, hard_state: HardStateFile, members: Members) -> None:
        self.log = log
        self._members = members
        self._hard_state = hard_state
        self._first: LibraryEntry | None = None
        self._last: LibraryEntry | None = None
        self._last_header: Header | None = None
        self.check_hard_state()

    def check_hard_state(self) -> None:
        """Raise CorruptLog if the saved term is older than the log's last entry.

        A term is saved before its first entry is appended. So the `term` file was lost, or replaced
        by an old copy, and the node may have forgotten a vote: it could vote twice in a term. The
        library would take the log's term and go on.
        """
        saved, last = self._hard_state.state.term, self.log.last
        if last is not None and last.term > saved:
            raise CorruptLog(
                f"{self.log.folder}: the saved term is {saved}, but the log has entries of term "
                f"{last.term}: the file `term` was lost, or replaced by an older one. Starting "
                "anyway could vote twice in a term. Remove this replica's folder and let it copy "
                "from its peers."
            )

    # -- reading ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.log.last_index - self.log.first_index + 1

    def library_entry(self, index: int) -> LibraryEntry:
        """An entry as the library wants it."""
        header = self.log.reader.header(index)
        return Command(header.kind, header.body_length), index, header.term

    def term_of(self, index: int) -> int:
        """The term of an entry."""
        return self.log.reader.header(index).term

    def __getitem__(self, key: SupportsIndex | slice) -> LazySlice | LibraryEntry:
        if key == -1:
            return self._last_entry()
        if key == 0:
            return self._first_entry()
        first = self.log.first_index
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            return LazySlice(self, first + start, first + stop - 1)
        at = int(key)
        return self.library_entry(first + (at if at >= 0 else len(self) + at))

    def _first_entry(self) -> LibraryEntry:
        # The library asks for it with every message, and it lies in the oldest file. It is cached
        # once it is committed: then it is never cut.
        log, first = self.log, self._first
        if first is None or first[1] != log.first_index:
            first = self.library_entry(log.first_index)
            self._first = first if log.first_index <= log.commit_index else None
        return first

    def _last_entry(self) -> LibraryEntry:
        # The library asks for it several times with every message, so it is cached.
        last = self.log.last
        if self._last is None or last is not self._last_header:
            if last is None:
                raise IndexError(-1)
            self._last_header = last
            self._last = (Command(last.kind, last.body_length), last.index, last.term)
        return self._last

    # -- writing ---------------------------------------------------------------------------

    def add(self, command: Copy | bytes, idx: int, term: int) -> None:
        """Put an entry at `idx`.

        Raises CorruptLog where replicas differ, Rot where this is damaged, Fenced, StorageError.
        """
        if isinstance(command, Copy):
            self._add_copy(command, idx, term)
        elif isinstance(command, bytes) and command[0] == COMMAND_NOOP:
            self.log.append(idx, term, Kind.NOOP, b"")
        else:
            raise StorageError(f"the library tried to append a command of type {command[:1]!r}")

    def _add_copy(self, copy: Copy, index: int, term: int) -> None:
        if index <= self.log.last_index:
            held = self.log.reader.header(index)
            if (held.term, held.chain_crc) == (term, copy.header.chain_crc):
                return
            self.log.reader.checked_run_of(index, index)
            self._check_chain(copy, index)
            if held.term == term:
                raise CorruptLog(
                    f"entry {index} of term {term} has chain CRC {held.chain_crc:#010x} here and "
                    f"{copy.header.chain_crc:#010x} at the leader: the replicas differ"
                )
            failpoint("log.cut")
            self.log.cut(index)
            failpoint("log.cut-done")
            self._members.cut(index)
        if copy.header.kind == Kind.CONFIGURATION:
            self._check_chain(copy, index)
            self._members.append(index, term, copy.body)
        self.log.append_copy(copy.header, copy.raw_header, copy.body)

    def _check_chain(self, copy: Copy, index: int) -> None:
        """Raise CorruptLog if an entry does not continue this log. This comes before anything is
        cut.

        If a bit of an entry's term has flipped, at the leader or here, an entry that this node has
        acknowledged looks like one of another leader, and would be cut.
        """
        chain_crc = chain(
            self.log.reader.chain_crc_before(index), copy.raw_header, copy.header.body_crc
        )
        if chain_crc != copy.header.chain_crc:
            raise CorruptLog(
                f"entry {index} of term {copy.header.term} does not continue this log, which "
                f"makes its chain CRC {chain_crc:#010x} and not {copy.header.chain_crc:#010x}: "
                "the leader's copy is damaged, or the replicas differ. Nothing was cut"
            )

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        """Do nothing: a tail is cut when an entry conflicts with it, by :meth:`add`."""

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Refuse: the head is removed by whole segments, never by rewriting."""
        raise StorageError("trimming the log through the Raft library is refused")

    def clear(self) -> None:
        """Refuse: nothing that the library does may empty the log."""
        raise StorageError("clearing the log through the Raft library is refused")

    # -- term, vote, commit index ----------------------------------------------------------

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Make term and vote durable, before any message that depends on them is sent."""
        self._hard_state.save(replace(self._hard_state.state, term=term, vote=votedForNodeId))

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The term that was saved last."""
        return self._hard_state.state.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """The vote that was saved last."""
        return self._hard_state.state.vote

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Note what is committed: it is never cut."""
        self.log.commit_index = max(self.log.commit_index, index)

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The index known to be committed, but never beyond the end of the log."""
        return max(self.log.first_index, min(self.log.commit_index, self.log.last_index))

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Do nothing: checkpoints are the ledger's."""

    def _destroy(self) -> None:
        """Do nothing: the ledger closes the log."""
