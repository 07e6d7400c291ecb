"""Every planted fault is caught: by the right property, with the message and the replica named.

An audit takes seconds, so faults that don't touch each other share one. What
`test_two_judges` finds in small runs, too, is sought here in the long form only.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

from dledger.errors import ConfigError
from dledger.log.entry import Kind
from mqspark.auditing import gather, judge_run
from mqspark.source.planning import Replica
from mqspark.testing import planting
from mqspark.testing.planting import Event
from mqspark.testing.rewriting import read_log
from mqspark.testing.synthetic import LogWriter, Run, write_run
from mqspark.verdict import PROPERTIES, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUN = Run(messages=400, queues=4, batch=20, segment_bytes=65_536)
FLIPPED, REMOVED, REPLACED = (RUN.message_id(number) for number in (123, 247, 305))
#: Of one entry, and so of one size, but in two queues.
SWAPPED, SWAPPED_TOO = RUN.message_id(181), RUN.message_id(183)
GHOST, FORGED = "F" * 32, "E" * 32
NODES = ["n0", "n1", "n2"]
ONE = pytest.param(["n1"], id="n1")
ALL = pytest.param(NODES, id="all")


def also(nodes: ParameterSet) -> ParameterSet:
    """The other choice of replicas, for the long form."""
    return pytest.param(*nodes.values, id=nodes.id, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clean")
    write_run(RUN, directory)
    return directory


@dataclass
class Copy:
    """A copy of the clean run, to break."""

    directory: Path

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def replicas(self) -> list[Replica]:
        return planting.replicas_of(self.directory.glob("broker-*"))

    def on(self, nodes: list[str], plant: Callable[[Replica], None]) -> None:
        for replica in self.replicas:
            if replica.node in nodes:
                plant(replica)

    def lie(self, nodes: list[str], *, recompute: bool) -> None:
        """A message is changed, one is replaced, two change places; with right CRCs or stale."""
        self.on(nodes, lambda log: planting.flip(log, FLIPPED, recompute=recompute))
        self.on(
            nodes, lambda log: planting.replace_message(log, REPLACED, GHOST, recompute=recompute)
        )
        self.on(nodes, lambda log: planting.swap(log, SWAPPED, SWAPPED_TOO, recompute=recompute))

    def edit_history(self, edit: Callable[[Event], list[Event]]) -> None:
        planting.edit_history(self.history, edit)

    def audited(self, session: SparkSession) -> Verdict:
        return judge_run(session, self.history, self.replicas, lambda _: None)


@pytest.fixture
def copy(clean_run: Path, tmp_path: Path) -> Copy:
    shutil.copytree(clean_run, tmp_path / "copy")
    return Copy(tmp_path / "copy")


def found(verdict: Verdict) -> dict[int, set[tuple[object, ...]]]:
    """The violated properties, with the (kind, message, replicas) that each names."""
    return {
        judgement.number: {
            (row["what"], row["message_id"], row["replica"]) for row in judgement.violations
        }
        for judgement in verdict.judgements
        if not judgement.holds
    }


def shown_well(verdict: Verdict, nodes: list[str]) -> None:
    """The lost message's exhibit: what was said of it, what is there instead, and where it is."""
    (exhibit,) = [
        violation.exhibit
        for violation in verdict.written().properties[0].violations
        if violation.message_id == REMOVED
    ]
    assert exhibit is not None
    own = [json.loads(line) for line in exhibit.lines if REMOVED in line]
    assert [event["kind"] for event in own] == ["send", "ack", "deliver"]
    assert all(each.position == own[1]["position"] for each in exhibit.held)
    there = {each.replica for each in exhibit.held if each.what == f"message {REMOVED}"}
    assert there == set(NODES) - set(nodes)
    assert all(each.data.startswith("00000000") for each in exhibit.held if each.replica in nodes)


def test_a_clean_run_has_no_violation(copy: Copy, session: SparkSession) -> None:
    """Nothing is found in a run as it should be, and everything in it is counted."""
    verdict = copy.audited(session)
    assert found(verdict) == {}
    assert verdict.counts == {
        "sent": 400,
        "acknowledged": 400,
        "stored": {f"broker-a/{node}": 400 for node in NODES},
        "consumed": 400,
        "lost": 0,
        "phantom": 0,
        "duplicated": 0,
        "reordered": 0,
        "replicas_equal": True,
    }


@pytest.mark.parametrize("nodes", [ONE, also(ALL)])
def test_a_lying_disk_is_found(nodes: list[str], copy: Copy, session: SparkSession) -> None:
    """Bytes flipped, zeroed, replaced and swapped under stale CRCs, on one disk and on all."""
    copy.lie(nodes, recompute=False)
    copy.on(nodes, lambda replica: planting.remove(replica, REMOVED, recompute=False))
    verdict = copy.audited(session)
    violations = found(verdict)
    where = ", ".join(nodes)
    shown_well(verdict, nodes)
    assert violations[1] == {
        ("damaged", FLIPPED, where),
        ("lost", REMOVED, where),
        ("lost", REPLACED, where),
        ("damaged", SWAPPED, where),
        ("damaged", SWAPPED_TOO, where),
    }
    assert violations[2] == {
        ("damaged", FLIPPED, where),
        ("phantom", GHOST, where),
        ("damaged", SWAPPED, where),
        ("damaged", SWAPPED_TOO, where),
    }
    assert violations[3] == {("contested", REPLACED, where)}
    # Each of the four entries fails its CRC; the first of its messages that is wrong is named.
    assert violations[5] == {
        ("damaged", message, where) for message in (FLIPPED, REMOVED, REPLACED, SWAPPED)
    }
    assert {replica for _, _, replica in violations[13]} == {where}


@pytest.mark.long
@pytest.mark.parametrize("nodes", [ALL, ONE])
def test_a_lying_broker_is_found(nodes: list[str], copy: Copy, session: SparkSession) -> None:
    """Messages changed, replaced and swapped in a log whose every CRC is right."""
    copy.lie(nodes, recompute=True)
    violations = found(copy.audited(session))
    where = ", ".join(nodes)
    assert violations[1] == {
        ("altered", FLIPPED, where),
        ("lost", REPLACED, where),
        ("moved", SWAPPED, where),
        ("moved", SWAPPED_TOO, where),
    }
    assert violations[2] == {("altered", FLIPPED, where), ("phantom", GHOST, where)}
    assert {message for _, message, _ in violations[3]} == {REPLACED, SWAPPED, SWAPPED_TOO}
    if nodes == NODES:
        # Replicas that lie alike do not contradict each other: only the history does.
        assert set(violations) == {1, 2, 3, 4}
        assert violations[4] == {("vanished", REPLACED, None)}
    else:
        assert violations[5] == {("changed", FLIPPED, where)}
        assert violations[13] == {("different", FLIPPED, where)}


@pytest.mark.parametrize("nodes", [ONE, also(ALL)])
def test_a_message_cut_out_of_a_log_is_found(
    nodes: list[str], copy: Copy, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is lost, and all that stood behind it has moved: each is counted as what it is, though
    only the first few are spelled out."""
    monkeypatch.setattr("mqspark.verdict.VIOLATIONS_SHOWN_MAX", 3)
    copy.on(nodes, lambda replica: planting.remove(replica, REMOVED, recompute=True))
    verdict = copy.audited(session)
    (first, *_) = verdict.judgements
    worst = first.violations[0]
    assert (worst["what"], worst["message_id"], worst["replica"]) == (
        *("lost", REMOVED),
        ", ".join(nodes),
    )
    assert set(first.kinds) == {"lost", "moved"}
    assert (first.kinds["lost"], len(first.violations)) == (1, 3)
    assert first.kinds["moved"] > 100
    assert first.count == sum(first.kinds.values())
    assert verdict.counts["lost"] == 1


@pytest.mark.long
@pytest.mark.parametrize("nodes", [ALL, ONE])
def test_what_was_never_sent_or_never_stored_is_found(
    nodes: list[str], copy: Copy, session: SparkSession
) -> None:
    """A second copy and a phantom, even in one replica's tail; an acknowledgement of nothing."""
    copy.on(nodes, lambda replica: planting.duplicate(replica, FLIPPED))
    copy.on(nodes, lambda replica: planting.phantom(replica, REMOVED, GHOST))
    planting.forge_ack(copy.history, RUN.message_id(398), FORGED)
    where = ", ".join(nodes)
    assert found(copy.audited(session)) == {
        1: {("lost", FORGED, ", ".join(NODES))},
        2: {("phantom", GHOST, where)},
        9: {("duplicate", FLIPPED, where)},
    }


@pytest.mark.long
@pytest.mark.parametrize("shorten", [False, True], ids=["zeros", "short file"])
def test_a_truncated_last_segment_is_found(
    shorten: bool, copy: Copy, session: SparkSession
) -> None:
    """What was acknowledged in the entries that were cut off is lost on this replica."""
    copy.on(["n2"], lambda replica: planting.truncate(replica, 2, shorten=shorten))
    violations = found(copy.audited(session))
    last = {("lost", RUN.message_id(number), "n2") for number in range(380, 400)}
    assert last <= violations[1]
    assert len(violations[1]) <= 2 * len(last)
    assert {(what, replica) for what, _, replica in violations[13]} == {("incomplete", "n2")}


@pytest.mark.long
def test_a_missing_segment_is_found(copy: Copy, session: SparkSession) -> None:
    """A file that is gone is a range of damaged bytes, not the end of the log."""
    first, *_ = (replica for replica in copy.replicas if replica.node == "n1")
    (Path(first.directory) / "log" / f"{0:020}.seg").rename(copy.directory / "gone")
    (Path(first.directory) / "log" / f"{65_536:020}.seg").rename(copy.directory / "gone too")
    violations = found(copy.audited(session))
    assert ("lost", RUN.message_id(0), "n1") in violations[1]
    assert ("incomplete", RUN.message_id(0), "n1") in violations[13]


def test_a_history_that_clients_should_not_have_seen_is_found(
    copy: Copy, session: SparkSession
) -> None:
    """Reads of refused, unknown and skipped messages, and an offset that goes back in time."""
    refused, skipped, late, overtaking = (RUN.message_id(n) for n in (40, 81, 121, 201))

    def edit(event: Event) -> list[Event]:
        kind, message_id = event["kind"], event.get("id")
        if kind == "ack" and message_id == refused:
            return [{"kind": "fail", "t": event["t"], "id": refused, "definite": True}]
        if kind == "deliver" and message_id == skipped:
            return []
        if kind == "deliver" and message_id == late:
            return [{**event, "t": 10**12}]
        if kind == "deliver" and message_id == RUN.message_id(0):
            return [event, {**event, "id": GHOST, "queue_id": 3, "offset": 100}]
        if kind == "send" and message_id == overtaking:
            return [{**event, "t": 10**12}]
        return [event]

    copy.edit_history(edit)
    violations = found(copy.audited(session))
    assert violations == {
        2: {
            ("refused", refused, ", ".join(NODES)),
            ("refused", refused, None),
            ("phantom", GHOST, None),
            ("phantom", overtaking, None),  # read before it was sent
        },
        4: {
            ("overtaken", overtaking, None),
            ("skipped", None, None),
            ("late", None, None),
            ("vanished", GHOST, None),
        },
    }


def test_what_can_not_be_concluded_is_no_violation(copy: Copy, session: SparkSession) -> None:
    """Unknown outcomes, repeats, late groups, torn lines and differing tails prove nothing."""
    unanswered, unknown, absent = RUN.message_id(40), RUN.message_id(41), "A" * 32

    def edit(event: Event) -> list[Event]:
        kind, message_id = event["kind"], event.get("id")
        if kind == "ack" and message_id == unanswered:
            return []
        if kind == "ack" and message_id == unknown:
            return [{"kind": "fail", "t": event["t"], "id": unknown, "definite": False}]
        if kind == "send" and message_id == RUN.message_id(50):
            return [event, {**event, "id": absent}]
        if kind == "deliver" and message_id == RUN.message_id(60):
            late = {**event, "group": "late-group"}
            return [event, {**event, "t": 10**12}, late]
        return [event]

    copy.edit_history(edit)
    with (copy.history / "harness.jsonl").open("a") as file:
        file.write('{"kind":"deliver","t":12')
    tails = {"n0": [(Kind.CONTROL, b"x", 2)], "n1": [(Kind.NOOP, b"", 3)], "n2": []}
    for replica in copy.replicas:
        entries = read_log(replica)
        log = LogWriter(Path(replica.directory), replica.segment_bytes)
        for entry in entries:
            log.append(entry.kind, entry.body, entry.term)
        for kind, body, term in tails[replica.node]:
            log.append(kind, body, term)
        log.close()
    verdict = copy.audited(session)
    assert found(verdict) == {}
    assert [note.split(":")[0] for note in verdict.notes] == ["broker-a/n0", "broker-a/n1"]


def test_a_clock_that_falls_blames_nobody(copy: Copy, session: SparkSession) -> None:
    """Of a producer and a consumer: what each noted later is too early. It is said whose."""
    for client, fall_ms in (("producer-0", 2_000), ("consumer-1", 50)):
        path = copy.history / f"{client}.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events[len(events) // 2 :]:
            event["t"] -= fall_ms * 1_000_000
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    verdict = copy.audited(session)
    assert found(verdict) == {}
    assert {note.split(" fell")[0] for note in verdict.notes} >= {
        "the clock of consumer-1",
        "the clock of producer-0",
    }
    planting.remove(copy.replicas[0], REMOVED, recompute=True)
    evidence = gather(session, copy.history, copy.replicas)
    lost = [row.message_id for row in PROPERTIES[0].judge(evidence).collect() if row.what == "lost"]
    evidence.close()
    assert lost == [REMOVED]


def test_lines_that_cannot_be_read_leave_a_run_undecided(copy: Copy, session: SparkSession) -> None:
    """Torn in the middle of a file, or without a field: what they would say nobody knows."""
    path = copy.history / "producer-0.jsonl"
    lines = path.read_text().splitlines()
    lines[4], lines[6] = lines[4][:40], lines[6].replace('"crc"', '"cr"')
    path.write_text("\n".join(lines) + "\n" + lines[8][:30])
    verdict = copy.audited(session)
    assert found(verdict) == {}
    assert verdict.is_undecided
    authentic = verdict.judgements[1]
    assert authentic.unjudged is not None
    assert authentic.unjudged.startswith("2 lines of producer-0.jsonl can't be read; ")
    assert verdict.written().verdict == "undecided"
    planting.flip(copy.replicas[0], FLIPPED, recompute=True)
    assert not copy.audited(session).is_undecided


def test_a_run_that_goes_on_is_undecided(copy: Copy, session: SparkSession) -> None:
    """What was stored after the history was copied looks like thousands of phantoms."""
    for path in copy.history.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        ends = [event["t"] for event in lines if event["kind"] != "end"]
        half = min(ends) + (max(ends) - min(ends)) // 2
        kept = [event for event in lines if event["t"] <= half]
        path.write_text("".join(json.dumps(event) + "\n" for event in kept))
    verdict = copy.audited(session)
    assert verdict.is_undecided
    authentic = verdict.judgements[1]
    assert authentic.doubted > 0
    assert authentic.unjudged is not None
    assert authentic.unjudged.startswith("the history has no end: its run goes on, or was cut off")


def test_a_client_without_a_file_is_named(copy: Copy, session: SparkSession) -> None:
    """Its absence would look like thousands of phantoms; so would one that is compressed."""
    with (copy.history / "harness.jsonl").open("a") as file:
        for client in ("producer-0", "producer-7"):
            file.write(json.dumps({"kind": "started", "t": 10**12, "client": client}) + "\n")
    with pytest.raises(ConfigError, match="no file of producer-7 is there"):
        copy.audited(session)
    (copy.history / "producer-7.jsonl.gz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"has producer-7\.jsonl\.gz: unpack"):
        copy.audited(session)
