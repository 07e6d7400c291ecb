"""Commits of consumer offsets: many to an entry, each answered once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import AppendError, OutcomeUnknown
from dledger.log.entry import Kind
from dledger.testing.local import LocalLedger
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.leader.role import Role
from mqbroker.refusal import Refused
from mqbroker.state.control import PutTopics, decode_control, encode_control
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.machine import Machine
from mqbroker.state.shares import Shares
from mqbroker.state.topics import read_write


class Commits:
    """Commits on a ledger that the test commits, with a record of what was asked for."""

    def __init__(self, directory: Path) -> None:
        self.machine = Machine(directory)
        self.ledger = LocalLedger(self.machine, auto=False)
        topics = encode_control(PutTopics([read_write("T", 4)], 1))
        self.ledger.append_nowait(topics, Kind.CONTROL, lambda _: None)
        self.ledger.commit()
        self.faults: list[Exception] = []
        role = Role("n0", {"n0": "127.0.0.1:1"})
        role.leading(1)
        assignments = Assignments(self.machine, lambda: 1, lambda: 0.0)
        entries = Entries(self.ledger, assignments, self.faults.append)
        definitions = self.definitions = Definitions(
            self.machine, entries, role, assignments, lambda: True
        )
        self.wakes: list[float] = []
        self.answers: list[AppendError | Refused | None] = []
        self.commits = OffsetCommits(self.machine, definitions, self.wakes.append)

    def commit(self, queue_id: int, offset: int) -> None:
        self.commits.commit(QueueKey("G", "T", queue_id), offset, self.answers.append)

    def gather(self, queue_id: int, offset: int) -> None:
        self.commits.gather(QueueKey("G", "T", queue_id), offset)

    def written(self) -> list[object]:
        """The offsets of each commit entry that is applied."""
        entries = [entry for entry in self.ledger.entries(3) if entry.kind == Kind.CONTROL]
        return [getattr(decode_control(entry.body), "offsets", None) for entry in entries]


@pytest.fixture
def commits(tmp_path: Path) -> Commits:
    return Commits(tmp_path)


def test_one_way_commits_are_gathered_and_the_newest_counts(commits: Commits) -> None:
    """One-way commits of several queues share one entry; each queue's newest counts."""
    commits.gather(0, 1)
    commits.gather(1, 5)
    commits.gather(0, 2)
    assert commits.wakes == [0.05] * 3
    commits.commits.flush()
    commits.ledger.commit()
    assert commits.written() == [[("G", "T", 0, 2), ("G", "T", 1, 5)]]


def test_a_commit_that_changes_nothing_writes_nothing(commits: Commits) -> None:
    """A commit of the same offset writes nothing: idle consumers commit every five seconds."""
    commits.gather(0, 1)
    commits.commits.flush()
    commits.ledger.commit()
    commits.gather(0, 1)
    commits.commits.flush()
    commits.ledger.commit()
    assert len(commits.written()) == 1


def test_a_waiting_commit_takes_what_was_gathered_with_it(commits: Commits) -> None:
    """A commit that waits is answered when its entry, with the gathered ones, is applied."""
    commits.gather(0, 1)
    commits.commit(1, 7)
    assert commits.wakes[-1] == 0.0
    commits.commits.flush()
    assert commits.answers == []
    commits.ledger.commit()
    assert commits.answers == [None]
    assert commits.machine.offsets.get("G", "T", 0) == 1


def test_while_one_entry_is_on_its_way_the_next_commits_gather(commits: Commits) -> None:
    """Commits that come while an entry is on its way share the next one."""
    for offset in range(1, 6):
        commits.commit(0, offset)
        commits.commits.flush()
    commits.ledger.commit()
    assert commits.answers == [None]
    commits.commits.flush()
    commits.ledger.commit()
    assert commits.answers == [None] * 5
    assert commits.written() == [[("G", "T", 0, 1)], [("G", "T", 0, 5)]]


def test_who_asks_for_an_offset_waits_for_the_commits_before(commits: Commits) -> None:
    """A consumer that leaves commits one-way, and the next owner asks at once."""
    settled: list[int | None] = []

    def ask() -> bool:
        return commits.commits.await_pending(
            QueueKey("G", "T", 0),
            lambda _: settled.append(commits.machine.offsets.get("G", "T", 0)),
        )

    assert not ask()
    commits.gather(0, 7)
    assert ask()
    assert commits.wakes[-1] == 0.0
    commits.commits.flush()
    assert ask()
    assert settled == []
    commits.ledger.commit()
    assert settled == [7, 7]
    assert not ask()


def test_lost_leadership_answers_all_who_wait(commits: Commits) -> None:
    """Commits on their way have an unknown outcome when the lead is lost; others are refused."""
    commits.commit(0, 1)
    commits.commits.flush()
    commits.commit(0, 2)
    commits.ledger.follow("n1")
    commits.commits.reset()
    assert [type(answer).__name__ for answer in commits.answers] == ["OutcomeUnknown", "NotLeader"]
    assert isinstance(commits.answers[0], OutcomeUnknown)
    commits.commit(0, 3)
    commits.commits.flush()
    assert type(commits.answers[2]).__name__ == "NotLeader"


def test_waiting_commits_are_bounded(commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting commits beyond the bound are refused, and one-way ones dropped."""
    monkeypatch.setattr("mqbroker.limits.COMMITS_PER_ENTRY_MAX", 2)
    commits.commit(0, 1)
    commits.commit(1, 1)
    with pytest.raises(Refused, match="try again later") as refused:
        commits.commit(2, 1)
    assert refused.value.ext == {"retryAfterMillis": "100"}
    with pytest.raises(Refused, match="2 offset commits wait"):
        commits.gather(3, 1)
    commits.commits.flush()
    commits.ledger.commit()
    assert commits.machine.offsets.get("G", "T", 3) is None


def test_the_number_of_offsets_is_bounded(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of made-up groups are bounded, and known groups go on committing."""
    commits.gather(0, 1)
    commits.commits.flush()
    commits.ledger.commit()
    offsets = commits.machine.offsets
    monkeypatch.setattr(offsets, "shares", Shares("consumer offsets", "group", 1, 1))
    offsets.shares.change("G", 1)
    with pytest.raises(Refused, match="1 consumer offsets are kept of at most 1"):
        commits.commit(1, 1)
    commits.commit(0, 2)
    commits.commits.flush()
    commits.ledger.commit()
    assert commits.machine.offsets.get("G", "T", 0) == 2


def test_commits_that_would_come_behind_the_end_of_their_topic_are_left_out(
    commits: Commits,
) -> None:
    """A commit of a topic that is being deleted would count for the next, and is left out."""
    for queue_id in (0, 1):
        commits.commit(queue_id, 7)
        if queue_id == 0:
            commits.definitions.delete_topic("T", lambda _: None)
    commits.definitions.put_topics([read_write("T", 4)], lambda _: None)
    commits.commits.flush()
    commits.ledger.commit()
    assert commits.answers == [None, None]
    assert commits.machine.offsets.get("G", "T", 0) is None
