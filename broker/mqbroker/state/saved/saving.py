"""A replica's state as it is saved, copied and restored: in memory, and in files made from the log.

The state in memory is saved as a snapshot now and then (`begin_snapshot`); consume queues and the
key index are files of their own. The order of durability is: the log up to where the state was
taken, those files, then the snapshot that claims their ends renamed into place, then the
directories removed that it no longer mentions. A snapshot must not be ahead of its log: after a
power loss it could hold what was never committed.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from dledger.buffers import Buffer
from dledger.errors import StorageError
from dledger.raft.replication.base_state import Hold
from dledger.slices import drained, in_slices
from mqbroker.state.derived.consume_queue import (
    ConsumeQueues,
    TopicQueues,
    remove_paths,
    sync_files,
)
from mqbroker.state.derived.key_index import KeyIndex
from mqbroker.state.derived.units import Damage
from mqbroker.state.memory import Memory
from mqbroker.state.rows.picture import Fields, Pairs
from mqbroker.state.saved.snapshot import (
    SNAPSHOT_FILE,
    UNITS_FORMAT,
    PendingSnapshot,
    PictureSpoiled,
    State,
    decode_state,
    encode_state,
    read_snapshot,
    write_snapshot,
)


class SavedState(Memory):
    """The state of one replica. `directory` is the replica's store."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.applied_index = 0
        self.saved_index = 0  # the state is saved up to here
        #: How many states were taken over from others: a snapshot taken before is void.
        self.generation = 0
        #: Messages before this position, and entries before this index, are not kept any more.
        self.first_position = 0
        self.first_index = 1
        self._ahead_index = 0
        self._unsynced: set[Path] = set()
        self._outdated: set[Path] = set()
        #: Damage that readers of the queues and the index have found: see `derive_again`.
        self.damage = Damage()
        self.queues = ConsumeQueues(directory / "queues", self.damage)
        self.keys = KeyIndex(directory / "index", damage=self.damage)
        self._trimmed = False
        self._snapshot_path = directory / SNAPSHOT_FILE

    def restore(self) -> str | None:
        """Take over the last snapshot. If not all of it can be used, returns why.

        If the snapshot can't be used, start empty: the ledger replays the whole log, and nothing is
        lost. If only the files of queues and keys can't, these are derived again. No file is
        changed before the first `apply`: until then the store may turn out to be another broker's.
        """
        try:
            payload = read_snapshot(self._snapshot_path)
            if payload is None:
                return None
            state = drained(decode_state(payload))
        except StorageError as error:
            return str(error)
        self._take(state)
        self.take_memory(state)
        self.saved_index = state.applied_index
        try:
            if state.units_format != UNITS_FORMAT:
                raise StorageError("queues and keys were written by another version")
            self.queues.adopt(drained(self.queues.restoring(state.queues, state.begins)))
            self.keys.restore(*state.keys)
        except StorageError as error:
            topics = drained(self._queues_anew(state))
            self.queues.forget()
            self._begin_again(topics, self.first_index)
            return f"{error}; queues and keys are derived again"
        return None

    @property
    def state_index(self) -> int:
        """The state holds the entries up to here, though queues and index may lack them."""
        return max(self.applied_index, self._ahead_index)

    def derive_again(self) -> None:
        """Queues or index are damaged: rebuild them from the log's entries, which are applied
        again. All other state stays."""
        ends, begins = drained(self.queues.picture())
        topics = drained(self._queues_anew(State(queues=ends, begins=begins)))
        self._drop_files()
        self._begin_again(topics, self.first_index)

    def forget(self) -> None:
        """Start empty, without what a snapshot claims."""
        self.saved_index = 0
        self.queues.forget()
        self.keys.forget()
        self._take(State())
        self.take_memory(State())

    def begin_snapshot(self) -> Generator[Hold, None, PendingSnapshot]:
        """Take a snapshot of the present state, in slices. At most one may be pending at a time.

        Nothing may be applied before the last one; PictureSpoiled if something was. The snapshot
        may be dropped; once it is written `saved` must be called.
        """
        return in_slices(self._beginning_snapshot())

    def _beginning_snapshot(self) -> Generator[Hold, None, PendingSnapshot]:
        version = self.applied_index, self.generation
        for _ in self.queues.flush_steps():
            yield Hold.APPLYING
        self.keys.flush()
        self._unsynced |= self.queues.take_unsynced() | self.keys.take_unsynced()
        self._outdated.update(self.queues.take_deleted())
        unsynced, deleted = frozenset(self._unsynced), frozenset(self._outdated)
        fields = yield from self._whole_picture(version)
        path, keys, keys_end = self._snapshot_path, self.keys, self.keys.end

        def write() -> None:
            sync_files(unsynced)
            write_snapshot(path, encode_state(fields))
            remove_paths(deleted)
            keys.seal(keys_end)

        return PendingSnapshot(
            self.applied_index, self.state_index, self.generation, unsynced, deleted, write
        )

    def saved(self, snapshot: PendingSnapshot) -> None:
        """A snapshot is durable now.

        If another state was taken over since it was taken, its files are gone: it is ignored.
        """
        if snapshot.generation == self.generation:
            self._unsynced -= snapshot.synced
            self._outdated -= snapshot.removed
            self.saved_index = snapshot.applied_index

    def _whole_picture(self, of: tuple[int, int]) -> Generator[Hold, None, Fields]:
        """A picture of the state. PictureSpoiled unless it is that version, and stays it."""
        fields: Fields = {}
        for _ in self.picture(fields):
            yield Hold.APPLYING
        if (now := (self.applied_index, self.generation)) != of:
            raise PictureSpoiled(f"the state went from {of} to {now} under its picture")
        return fields

    def capture(self) -> Generator[Hold, None, tuple[int, bytearray]]:
        """The state for a replica that can't replay all of it: the log's head is gone."""
        return in_slices(self._capturing())

    def _capturing(self) -> Generator[Hold, None, tuple[int, bytearray]]:
        index, payload = self.applied_index, bytearray()
        fields = yield from self._whole_picture((index, self.generation))
        for piece in encode_state(fields):
            payload += piece
            yield Hold.NOTHING
        return index, payload

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        """Replace the state by another replica's, as of entry `index`, in slices: in the last one.

        Queues and keys are in files, which are not copied. They are rebuilt from the entries, which
        are applied from `first_index` on; those up to `index` change nothing else.
        Raises StorageError, and changes nothing, if this version can't read the state.
        """
        return in_slices(self._installing(index, payload, first_index), stays=True)

    def _installing(
        self, index: int, payload: Buffer, first_index: int
    ) -> Generator[None, None, None]:
        state = yield from decode_state(payload)
        memory = Memory()
        yield from memory.restoring(state)
        topics = yield from self._queues_anew(state)
        self._drop_files()
        self.saved_index = 0
        vars(self).update(vars(memory))
        self._take(state)
        self._ahead_index = max(index, state.ahead_index)
        self._begin_again(topics, first_index)

    def _queues_anew(self, state: State) -> Generator[None, None, dict[str, TopicQueues]]:
        """A state's queues at their first offsets."""
        begins = {
            topic: (made, {queue: state.begins.get(topic, {}).get(queue, 0) for queue in ends})
            for topic, (made, ends) in state.queues.items()
        }
        return (yield from self.queues.restoring(begins, state.begins))

    def _drop_files(self) -> None:
        """All files of queues and keys are outdated: other ones are made from the entries."""
        self.generation += 1
        self._unsynced.clear()
        self._outdated.clear()
        self.queues.forget()
        self.keys.forget()
        self._trim()

    def _begin_again(self, topics: dict[str, TopicQueues], first_index: int) -> None:
        """Reset the derived queues and keys; entries from `first_index` on are applied again."""
        self.keys.forget()
        self.queues.adopt(topics)
        self._ahead_index = self.state_index
        self.applied_index = first_index - 1

    def _trim(self) -> None:
        """Cut the files back to the ends of the queues and the index."""
        self.queues.trim()
        self.keys.trim()
        self._trimmed = True

    def close(self) -> None:
        """Close the files; a restart replays what is not in a snapshot."""
        self.queues.close()

    def _take(self, state: State) -> None:
        self.applied_index = state.applied_index
        self._ahead_index = state.ahead_index
        self.first_position = self.dedup.first_position = state.first_position
        self.first_index = state.first_index

    def picture(self, fields: Fields) -> Generator[None, None, None]:
        """Give a picture all of the state, in steps. Nothing may be applied before the last."""
        fields["applied_index"] = self.applied_index
        fields["ahead_index"] = self._ahead_index
        fields["first_position"] = self.first_position
        fields["first_index"] = self.first_index
        fields["keys"] = (self.keys.first, self.keys.end)
        ends, begins = yield from self.queues.picture()
        fields["queues"], fields["begins"] = Pairs(ends), Pairs(begins)
        yield from super().picture(fields)
