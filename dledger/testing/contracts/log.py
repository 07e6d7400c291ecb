"""Promises of every log store, as tests to inherit: give them a place, and they run there.

    class TestMine(LogStoreContract):
        @pytest.fixture
        def storage(self) -> Storage:
            return OnDisk(MyDisk(), folder)

The first class holds wherever a process can die; the second one where the power can go, too.
`pytest.register_assert_rewrite("dledger.testing.contracts.log")` makes failures tell values.
"""

from __future__ import annotations

import pytest

from dledger.errors import CorruptLog, Fenced, StorageError, TooLarge
from dledger.log.entry import HEADER_BYTES, Kind, make_header, padded
from dledger.log.head import LogHead
from dledger.testing.log_store import (
    SEGMENT_BYTES,
    PoweredStorage,
    Storage,
    copy_to,
    entries_of,
    fill,
    head_at,
)

SEEDS = range(8)


class Positioned:
    """A body that says where it was placed."""

    size = 24

    def place(self, body_position: int, index: int, term: int) -> bytes:
        """Position, index and term, eight digits each."""
        return b"%08d%08d%08d" % (body_position, index, term)


class LogStoreContract:
    """A log of one replica, opened, written, cut, trimmed and opened again."""

    # -- appending and reading -------------------------------------------------------------

    def test_a_new_log_is_empty(self, storage: Storage) -> None:
        """A new log begins with entry 1, at position 0."""
        log = storage.open()
        assert (log.first_index, log.last_index, log.durable_index, log.commit_index) == (
            1,
            0,
            0,
            0,
        )
        assert (log.first_position, log.end_position, log.chain_crc) == (0, 0, 0)
        assert log.start_sync() is None

    def test_what_was_appended_is_found_again(self, storage: Storage) -> None:
        """Entries are found after a stop in order, byte for byte, at their places, and durable."""
        log = storage.open()
        fill(log, 100)
        before, end, chain_crc = entries_of(log), log.end_position, log.chain_crc
        log.close()
        again = storage.open()
        assert entries_of(again) == before
        assert (again.end_position, again.chain_crc, again.durable_index) == (end, chain_crc, 100)
        assert [bytes(entry.body[:12]) for entry in before[8:10]] == [
            b"9 of term 1;",
            b"10 of term 1",
        ]

    def test_what_is_not_in_the_log_cannot_be_read(self, storage: Storage) -> None:
        """An error says which entries there are."""
        log = storage.open()
        fill(log, 3)
        for index in (0, 4):
            with pytest.raises(StorageError, match=rf"index {index} is outside .*1 to 3"):
                log.reader.entry(index)
        with pytest.raises(StorageError, match="positions"):
            log.reader.view(log.end_position - 8, 16)

    def test_positions_follow_from_sizes(self, storage: Storage) -> None:
        """An entry follows the one before it, or starts the next segment: it never spans two."""
        log = storage.open()
        for size in (10, 150, 1000, 3000, 700, 3, 3900, 40):
            log.append(log.last_index + 1, 1, Kind.MESSAGES, bytes([size % 251]) * size)
        expected = 0
        for entry in entries_of(log):
            size = HEADER_BYTES + len(entry.body)
            if expected % SEGMENT_BYTES + size > log.entry_bytes_max:
                expected += SEGMENT_BYTES - expected % SEGMENT_BYTES
            assert entry.position == expected
            assert bytes(log.reader.view(entry.body_position, len(entry.body))) == bytes(entry.body)
            expected += padded(size)
        assert log.end_position == expected
        assert expected > 2 * SEGMENT_BYTES

    def test_a_draft_learns_where_it_is_before_it_is_written(self, storage: Storage) -> None:
        """A body that holds its own address finds itself there."""
        log = storage.open()
        fill(log, 3)
        log.append(4, 7, Kind.MESSAGES, Positioned())
        entry = log.reader.entry(4)
        assert bytes(entry.body) == b"%08d%08d%08d" % (entry.body_position, 4, 7)

    def test_an_index_follows_the_one_before(self, storage: Storage) -> None:
        """A log has no holes, and no index twice."""
        log = storage.open()
        fill(log, 3)
        for index in (3, 5):
            with pytest.raises(StorageError, match=rf"index {index} cannot follow 3"):
                log.append(index, 1, Kind.MESSAGES, b"")
        assert log.last_index == 3

    def test_an_entry_has_a_bound(self, storage: Storage) -> None:
        """The largest one that fits is taken; one byte more is refused, with both sizes named."""
        log = storage.open()
        room = log.entry_bytes_max - HEADER_BYTES
        with pytest.raises(
            TooLarge, match=f"{log.entry_bytes_max + 1} bytes .*{log.entry_bytes_max}"
        ):
            log.append(1, 1, Kind.MESSAGES, bytes(room + 1))
        assert log.last_index == 0
        log.append(1, 1, Kind.MESSAGES, bytes(room))
        log.close()
        assert len(storage.open().reader.entry(1).body) == room

    def test_a_copy_is_equal_byte_by_byte(self, storage: Storage) -> None:
        """A follower that takes a leader's raw entries has the same bytes at the same positions."""
        leader, follower = storage.open(), storage.another().open()
        fill(leader, 80)
        copy_to(follower, leader, 80)
        assert entries_of(follower) == entries_of(leader)
        assert follower.chain_crc == leader.chain_crc
        for index in range(1, 81):
            assert follower.reader.run_of(index, index) == leader.reader.run_of(index, index)

    def test_a_copy_that_does_not_continue_the_log_is_refused(self, storage: Storage) -> None:
        """The chain CRC tells that the replicas differ somewhere below."""
        log, other = storage.open(), storage.another().open()
        log.append(1, 1, Kind.MESSAGES, b"x" * 10)
        other.append(1, 1, Kind.MESSAGES, b"y" * 10)
        other.append(2, 1, Kind.MESSAGES, b"z" * 10)
        raw, header = other.reader.run_of(2, 2), other.reader.header(2)
        with pytest.raises(CorruptLog, match=r"entry 2 .*not continue"):
            log.append_copy(header, raw[:HEADER_BYTES], raw[HEADER_BYTES : header.size])
        assert log.last_index == 1

    # -- what is durable -------------------------------------------------------------------

    def test_a_sync_covers_what_was_appended_before_it(self, storage: Storage) -> None:
        """Entries that come while a sync runs are durable with the next one."""
        log = storage.open()
        fill(log, 5)
        job = log.start_sync()
        assert job is not None
        fill(log, 5)
        assert log.durable_index == 0
        job.run()
        log.finish_sync(job)
        assert log.durable_index == 5
        log.sync()
        assert log.durable_index == 10

    def test_a_sync_that_a_cut_overtook_counts_for_nothing(self, storage: Storage) -> None:
        """A sync that a cut overtook must not count for the entries in those places."""
        log = storage.open()
        fill(log, 10)
        job = log.start_sync()
        assert job is not None
        log.cut(4)
        fill(log, 9, term=2)
        job.run()
        log.finish_sync(job)
        assert log.durable_index <= 3
        log.sync()
        assert log.durable_index == 12

    def test_after_a_failed_sync_nothing_more_is_taken(self, storage: Storage) -> None:
        """A failed sync fences the log for ever, since the disk's content is not known."""
        log = storage.open()
        fill(log, 3)
        log.sync()
        fill(log, 3)
        storage.fail_next_sync()
        with pytest.raises(Fenced, match="input/output error"):
            log.sync()
        with pytest.raises(Fenced, match="input/output error"):
            fill(log, 1)
        assert log.durable_index == 3
        assert storage.open().last_index >= 3

    def test_on_a_full_disk_nothing_more_is_taken(self, storage: Storage) -> None:
        """The segment that is begun is reserved, so it can be filled; the next one can't be made.
        What was taken before is there when there is room again."""
        log = storage.open()
        fill(log, 3)
        storage.fill_up()
        with pytest.raises(Fenced, match="no space left"):
            fill(log, 100)
        taken = entries_of(log)
        assert len(taken) > 3
        with pytest.raises(Fenced, match="no space left"):
            fill(log, 1)
        again = storage.open()
        assert entries_of(again) == taken
        fill(again, 100)
        assert again.last_index == len(taken) + 100

    def test_damage_to_what_was_durable_stops_the_start(self, storage: Storage) -> None:
        """Damage to durable entries is not cut: the error names the entry, however often."""
        log = storage.open()
        fill(log, 20)
        log.sync()
        fill(log, 1)
        log.sync()
        storage.damage(log.reader.header(7))
        for _ in range(2):
            with pytest.raises(CorruptLog, match=r"entry 7 .*damaged|entry 7 .*body has CRC"):
                storage.open()

    def test_damage_to_what_nobody_vouched_for_is_cut_off(self, storage: Storage) -> None:
        """A torn entry is cut off: everything before it is there, and the log goes on."""
        log = storage.open()
        fill(log, 20)
        log.sync()
        fill(log, 3)
        before, header = entries_of(log), log.reader.header(22)
        log.start_sync()
        storage.damage(header)
        again = storage.open()
        assert entries_of(again) == before[:21]
        fill(again, 5, term=2)
        again.close()
        assert [entry.term for entry in entries_of(storage.open())] == [1] * 21 + [2] * 5

    # -- what goes -------------------------------------------------------------------------

    def test_a_cut_removes_a_tail_for_good(self, storage: Storage) -> None:
        """A start finds the entries after a cut, and no trace of the old ones."""
        log = storage.open()
        fill(log, 90)
        log.sync()
        log.cut(11)
        assert (log.last_index, log.durable_index) == (10, 10)
        fill(log, 7, term=2, size=33)
        expected = entries_of(log)
        log.close()
        assert entries_of(storage.open()) == expected
        assert [entry.term for entry in expected] == [1] * 10 + [2] * 7

    def test_a_cut_takes_back_nothing_that_is_committed(self, storage: Storage) -> None:
        """A cut of committed entries is refused, with the commit index."""
        log = storage.open()
        fill(log, 10)
        log.commit_index = 5
        with pytest.raises(StorageError, match="committed up to 5"):
            log.cut(5)
        log.cut(6)
        assert log.last_index == 5

    def test_only_what_is_committed_and_durable_is_trimmed_and_never_all(
        self, storage: Storage
    ) -> None:
        """Whatever the caller asks for."""
        log = storage.open()
        fill(log, 100)
        log.commit_index = 100
        assert log.trim(1000) is None
        log.sync()
        assert log.trim(1) is None
        log.commit_index = 40
        assert log.trim(1000) is not None
        assert 1 < log.first_index <= 40
        log.commit_index = 100
        log.trim(1000)
        assert log.first_index <= log.last_index == 100
        with pytest.raises(StorageError, match=f"{log.first_index} to 100"):
            log.reader.entry(log.first_index - 1)

    def test_a_trimmed_log_is_found_again_from_where_it_begins(self, storage: Storage) -> None:
        """A trimmed log's head has what its first entry continues."""
        log = storage.open()
        fill(log, 100)
        log.sync()
        log.commit_index = 100
        job = log.trim(60)
        assert job is not None
        job.run()
        kept, head = entries_of(log), log.reader.head_before(log.first_index)
        assert kept[0].index == log.first_index <= 60
        assert log.first_position == kept[0].position
        log.close()
        again = storage.open()
        assert entries_of(again) == kept
        assert again.reader.head_before(again.first_index) == head
        fill(again, 1)
        assert again.last_index == 101

    def test_a_log_begins_anew_with_a_leaders_first_entry(self, storage: Storage) -> None:
        """A log that begins anew has the leader's entry, durable at once, and takes later ones."""
        log, leader = storage.open(), storage.another().open()
        fill(log, 30)
        fill(leader, 100, term=2)
        first = next(
            i for i in range(50, 100) if not leader.reader.header(i).position % SEGMENT_BYTES
        )
        log.replace_by(head_at(leader, first))
        assert (log.first_index, log.last_index, log.durable_index) == (first, first, first)
        copy_to(log, leader, 100)
        log.close()
        assert entries_of(storage.open()) == entries_of(leader)[first - 1 :]

    def test_a_new_beginning_takes_back_nothing_that_is_committed(self, storage: Storage) -> None:
        """A head below this node's commit index, or one that is wrong, is refused."""
        log, leader = storage.open(), storage.another().open()
        fill(log, 90)
        fill(leader, 100)
        log.commit_index = 90
        first = next(
            i for i in range(50, 91) if not leader.reader.header(i).position % SEGMENT_BYTES
        )
        with pytest.raises(StorageError, match="take back"):
            log.replace_by(head_at(leader, first))
        _, raw = make_header(0, index=95, term=1, position=8192, kind=16, body=b"")
        with pytest.raises(CorruptLog, match="95"):
            log.replace_by(LogHead(8192, 95, 77, raw))
        assert log.last_index == 90


class PowerLossContract:
    """Promises of a log in a place that can lose its power."""

    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_was_durable_survives_and_the_rest_has_no_holes(
        self, storage: PoweredStorage, seed: int
    ) -> None:
        """A power loss leaves all durable entries, and a first part of the later ones."""
        log = storage.open()
        fill(log, 12 + seed)
        log.sync()
        durable_index = log.durable_index
        fill(log, 30)
        written = entries_of(log)
        log.start_sync()
        storage.lose_power(seed, 0.8)
        again = storage.open()
        found = entries_of(again)
        assert len(found) >= durable_index
        assert found == written[: len(found)]
        assert again.durable_index == again.last_index

    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_a_start_found_is_durable(self, storage: PoweredStorage, seed: int) -> None:
        """A killed process never synced it: the next one may count it only when it has."""
        log = storage.open()
        fill(log, 9 + seed)
        log.start_sync()
        again = storage.open()
        found = entries_of(again)
        assert again.durable_index == len(found) == 9 + seed
        storage.lose_power(seed, 0.0)
        assert entries_of(storage.open()) == found

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_cut_is_durable_at_once(self, storage: PoweredStorage, seed: int) -> None:
        """A cut is durable when it returns: after a power loss no cut entry comes back.

        The power goes right after it, and again after other entries took the places; none of these
        is missed.
        """
        log = storage.open()
        for count in (20, 5):
            fill(log, count)
            log.sync()
        log.cut(11 + seed)
        storage.lose_power(seed, 0.0)
        again = storage.open()
        assert again.last_index == 10 + seed
        fill(again, 40, term=2)
        again.start_sync()
        storage.lose_power(seed, 0.5)
        terms = [entry.term for entry in entries_of(storage.open())]
        assert terms == [1] * (10 + seed) + [2] * (len(terms) - 10 - seed)

    def test_a_sync_that_failed_vouches_for_nothing(self, storage: PoweredStorage) -> None:
        """The disk may have dropped what it covered, though it reads back until the power goes."""
        log = storage.open()
        fill(log, 4)
        log.sync()
        fill(log, 4)
        storage.fail_next_sync()
        with pytest.raises(Fenced):
            log.sync()
        assert log.durable_index == 4
        storage.lose_power(0, 0.0)
        assert storage.open().last_index == 4

    def test_where_a_log_begins_is_durable(self, storage: PoweredStorage) -> None:
        """A trim, and a new beginning, are durable once they are done."""
        log, leader = storage.open(), storage.another().open()
        fill(log, 60)
        log.sync()
        log.commit_index = 60
        job = log.trim(60)
        assert job is not None
        job.run()
        kept = entries_of(log)
        storage.lose_power(0, 0.0)
        again = storage.open()
        assert entries_of(again) == kept
        fill(leader, 100, term=2)
        first = next(
            i for i in range(70, 100) if not leader.reader.header(i).position % SEGMENT_BYTES
        )
        again.replace_by(head_at(leader, first))
        storage.lose_power(0, 0.0)
        assert entries_of(storage.open()) == [leader.reader.entry(first)]
