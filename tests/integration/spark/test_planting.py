"""Planted faults are caught by the right property, with the message and the replica named.

An audit takes seconds, however many runs it judges: one judges nearly all runs here, each under a
broker name of its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from dledger.errors import ConfigError
from dledger.log.entry import Kind
from dledger.log.segments.segment import segment_path
from mqspark.auditing import judge_run
from mqspark.exhibits.collecting import exhibits
from mqspark.source.planning import Replica
from mqspark.testing import planting
from mqspark.testing.planting import Event
from mqspark.testing.rewriting import read_log
from mqspark.testing.synthetic import LogWriter, Run, write_run
from mqspark.verdict import NO_META, Verdict

SHAPE = Run(messages=400, queues=4, batch=20, segment_bytes=65_536)
NODES = ["n0", "n1", "n2"]
ALL = ", ".join(NODES)
WHERE = pytest.mark.parametrize(("where", "nodes"), [("n1", "n1"), ("all", ALL)])
#: Messages go by their numbers. Two are of one entry, and so of one size, but in two queues.
FLIPPED, REMOVED, REPLACED, SWAPPED, SWAPPED_TOO = 123, 247, 305, 181, 183
REFUSED, SKIPPED, LATE, OVERTAKING = 40, 81, 121, 201
#: Nobody sent them.
GHOST, FORGED, ABSENT = (int(24 * digit, 16) for digit in "FEA")
LATER = 10**12
#: A kind of violation, the message, and the replicas.
Found = dict[int, set[tuple[object, ...]]]


@dataclass(frozen=True)
class Copy:
    """A copy of a run, to break."""

    run: Run
    directory: Path

    @classmethod
    def write(cls, run: Run, directory: Path) -> Copy:
        """Write the run, whose clients are named like the run."""
        copy = cls(run, directory)
        write_run(run, directory)

        def named(event: Event) -> list[Event]:
            whose = {"client": f"{run.broker}.{event['client']}"} if "client" in event else {}
            return [event | whose]

        planting.edit_history(copy.history, named)
        for path in [*copy.history.iterdir()]:
            path.rename(path.with_name(f"{run.broker}.{path.name}"))
        return copy

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def replicas(self) -> list[Replica]:
        return planting.replicas_of(self.directory.glob(f"{self.run.broker}-n?"))

    def file(self, client: str) -> Path:
        """The history of a client, or of the harness."""
        return self.history / f"{self.run.broker}.{client}.jsonl"

    def edit(self, changes: dict[tuple[str, int], Callable[[Event], list[Event]]]) -> None:
        """Replace the events of a kind and a message."""
        by_id = {
            (kind, self.run.message_id(number)): change
            for (kind, number), change in changes.items()
        }
        planting.edit_history(
            self.history,
            lambda event: by_id.get((event["kind"], event.get("id")), lambda same: [same])(event),
        )

    def on(self, nodes: Sequence[str], plant: Callable[[Replica], None]) -> None:
        for replica in self.replicas:
            if replica.node in nodes:
                plant(replica)

    def lie(self, nodes: Sequence[str], *, recompute: bool) -> None:
        """A message is changed, one is replaced, two change places; with right CRCs or stale."""
        of = self.run.message_id
        first, second = of(SWAPPED), of(SWAPPED_TOO)
        for plant in (
            lambda log: planting.flip(log, of(FLIPPED), recompute=recompute),
            lambda log: planting.replace_message(log, of(REPLACED), of(GHOST), recompute=recompute),
            lambda log: planting.swap(log, first, second, recompute=recompute),
        ):
            self.on(nodes, plant)

    def remove(self, nodes: Sequence[str], *, recompute: bool) -> None:
        """A message is taken out."""
        removed = self.run.message_id(REMOVED)
        self.on(nodes, lambda log: planting.remove(log, removed, recompute=recompute))


def failed(ack: Event, *, definite: bool) -> Event:
    """A failure in the place of an acknowledgement."""
    return {"kind": "fail", "t": ack["t"], "id": ack["id"], "definite": definite}


def lying_disk(copy: Copy, nodes: Sequence[str]) -> None:
    """Bytes are flipped, zeroed, replaced and swapped under stale CRCs."""
    copy.lie(nodes, recompute=False)
    copy.remove(nodes, recompute=False)


def seen_wrongly(copy: Copy) -> None:
    """Reads of refused, unknown and skipped messages, and an offset that goes back in time."""
    ghost = copy.run.message_id(GHOST)
    copy.edit(
        {
            ("ack", REFUSED): lambda ack: [failed(ack, definite=True)],
            ("deliver", SKIPPED): lambda _: [],
            ("deliver", LATE): lambda event: [{**event, "t": LATER}],
            ("deliver", 0): lambda event: [
                event,
                {**event, "id": ghost, "queue_id": 3, "offset": 100},
            ],
            ("send", OVERTAKING): lambda event: [{**event, "t": LATER}],
        }
    )


def inconclusive(copy: Copy) -> None:
    """Unknown outcomes, repeats, late groups, torn lines and differing tails."""
    absent = copy.run.message_id(ABSENT)
    copy.edit(
        {
            ("ack", 40): lambda _: [],
            ("ack", 41): lambda ack: [failed(ack, definite=False)],
            ("send", 50): lambda event: [event, {**event, "id": absent}],
            ("deliver", 60): lambda event: [
                event,
                {**event, "t": LATER},
                {**event, "group": "late-group"},
            ],
        }
    )
    with copy.file("harness").open("a") as file:
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


def fallen_clocks(copy: Copy) -> None:
    """The later notes of a producer and a consumer have times that are too early."""
    for client, fall_ms in (("producer-0", 2_000), ("consumer-1", 50)):
        path = copy.file(client)
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events[len(events) // 2 :]:
            event["t"] -= fall_ms * 1_000_000
        path.write_text("".join(json.dumps(event) + "\n" for event in events))


def never_sent(copy: Copy, nodes: Sequence[str]) -> None:
    of = copy.run.message_id
    copy.on(nodes, lambda log: planting.duplicate(log, of(FLIPPED)))
    copy.on(nodes, lambda log: planting.phantom(log, of(REMOVED), of(GHOST)))
    planting.forge_ack(copy.history, of(398), of(FORGED))
    (copy.history / "forged.jsonl").rename(copy.file("forged"))


PLANTS: dict[str, Callable[[Copy], object]] = {
    "clean": lambda _: None,
    "disk-n1": lambda copy: lying_disk(copy, ["n1"]),
    "disk-all": lambda copy: lying_disk(copy, NODES),
    "broker-n1": lambda copy: copy.lie(["n1"], recompute=True),
    "broker-all": lambda copy: copy.lie(NODES, recompute=True),
    "never-n1": lambda copy: never_sent(copy, ["n1"]),
    "never-all": lambda copy: never_sent(copy, NODES),
    "zeros": lambda copy: copy.on(["n2"], lambda log: planting.truncate(log, 2, shorten=False)),
    "short": lambda copy: copy.on(["n2"], lambda log: planting.truncate(log, 2, shorten=True)),
    "segments": lambda copy: [
        segment_path(copy.directory / "segments-n1" / "log", base).unlink() for base in (0, 65_536)
    ],
    "seen": seen_wrongly,
    "inconclusive": inconclusive,
    "fallen": fallen_clocks,
    "lost": lambda copy: (fallen_clocks(copy), copy.remove(["n0"], recompute=True)),
}
RUNS = {
    name: replace(SHAPE, broker=name, group=name, seed=number)
    for number, name in enumerate((*PLANTS, "alone"), 1)
}


class Audited(NamedTuple):
    """The verdict on all runs, and what it was found in."""

    verdict: Verdict
    history: Path
    replicas: list[Replica]

    def found(self, name: str) -> Found:
        """Properties that a run violates, with the (kind, message, replicas) that each names."""
        violated: Found = defaultdict(set)
        for judgement in self.verdict.judgements:
            for row in judgement.violations:
                if row["broker"] == name:
                    number = int(row["message_id"][8:], 16) if row["message_id"] else None
                    violated[judgement.number].add((row["what"], number, row["replica"]))
        return dict(violated)


@pytest.fixture(scope="module")
def audited(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    folder = tmp_path_factory.mktemp("runs")
    history, stores = folder / "all", list[Path]()
    history.mkdir()
    for name, plant in PLANTS.items():
        copy = Copy.write(RUNS[name], folder / name)
        plant(copy)
        stores += [Path(replica.directory) for replica in copy.replicas]
        for path in [*copy.history.iterdir()]:
            path.rename(history / path.name)
    replicas = planting.replicas_of(stores)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mqspark.verdict.VIOLATIONS_SHOWN_MAX", 10_000)
        return Audited(judge_run(session, history, replicas, lambda _: None), history, replicas)


def test_a_clean_run_has_no_violation(audited: Audited) -> None:
    """A clean run has no violation, and all of it is counted."""
    assert audited.found("clean") == {}
    stored = audited.verdict.counts["stored"]
    assert isinstance(stored, dict)
    assert [stored[f"clean/{node}"] for node in NODES] == [400] * 3


@WHERE
def test_a_lying_disk_is_found(where: str, nodes: str, audited: Audited) -> None:
    """Bytes flipped, zeroed, replaced or swapped under stale CRCs are found, on one disk or all."""
    violations = audited.found(f"disk-{where}")
    assert violations[1] == {
        ("damaged", FLIPPED, nodes),
        ("lost", REMOVED, nodes),
        ("lost", REPLACED, nodes),
        ("damaged", SWAPPED, nodes),
        ("damaged", SWAPPED_TOO, nodes),
    }
    assert violations[2] == {
        ("damaged", FLIPPED, nodes),
        ("phantom", GHOST, nodes),
        ("damaged", SWAPPED, nodes),
        ("damaged", SWAPPED_TOO, nodes),
    }
    assert violations[3] == {("contested", REPLACED, nodes)}
    # Each of the four entries fails its CRC; the first of its messages that is wrong is named.
    assert violations[5] == {
        ("damaged", message, nodes) for message in (FLIPPED, REMOVED, REPLACED, SWAPPED)
    }
    assert {replica for _, _, replica in violations[13]} == {nodes}


def test_a_loss_is_shown(audited: Audited, session: SparkSession) -> None:
    """The report shows what was said of a lost message, what is there instead, and where."""
    lost = RUNS["disk-n1"].message_id(REMOVED)
    rows = [row for row in audited.verdict.judgements[0].violations if row["message_id"] == lost]
    (shown,) = exhibits(session, audited.history, audited.replicas, [(1, row) for row in rows])
    own = [json.loads(line) for line in shown.lines if lost in line]
    assert [event["kind"] for event in own] == ["send", "ack", "deliver"]
    assert all(each.position == own[1]["position"] for each in shown.held)
    there = {each.replica for each in shown.held if each.what == f"message {lost}"}
    assert there == {"n0", "n2"}
    assert all(each.data.startswith("00000000") for each in shown.held if each.replica == "n1")


@WHERE
def test_a_lying_broker_is_found(where: str, nodes: str, audited: Audited) -> None:
    """Messages changed, replaced and swapped in a log with right CRCs are found."""
    violations = audited.found(f"broker-{where}")
    assert violations[1] == {
        ("altered", FLIPPED, nodes),
        ("lost", REPLACED, nodes),
        ("moved", SWAPPED, nodes),
        ("moved", SWAPPED_TOO, nodes),
    }
    assert violations[2] == {("altered", FLIPPED, nodes), ("phantom", GHOST, nodes)}
    assert {message for _, message, _ in violations[3]} == {REPLACED, SWAPPED, SWAPPED_TOO}
    if where == "all":
        # Replicas that lie alike do not contradict each other: only the history does.
        assert set(violations) == {1, 2, 3, 4}
        assert violations[4] == {
            ("vanished", number, None) for number in (REPLACED, SWAPPED, SWAPPED_TOO)
        }
    else:
        assert violations[5] == {("changed", FLIPPED, nodes)}
        assert violations[13] == {("different", FLIPPED, nodes)}


@WHERE
def test_what_was_never_sent_or_never_stored_is_found(
    where: str, nodes: str, audited: Audited
) -> None:
    """A second copy, a phantom, and an acknowledgement of nothing are found."""
    assert audited.found(f"never-{where}") == {
        1: {("lost", FORGED, ALL)},
        2: {("phantom", GHOST, nodes)},
        9: {("duplicate", FLIPPED, nodes)},
    }


@pytest.mark.parametrize("name", ["zeros", "short"])
def test_a_truncated_last_segment_is_found(name: str, audited: Audited) -> None:
    """Acknowledged messages in cut entries are lost on that replica."""
    violations = audited.found(name)
    last = {("lost", number, "n2") for number in range(380, 400)}
    assert last <= violations[1]
    assert len(violations[1]) <= 2 * len(last)
    assert {(what, replica) for what, _, replica in violations[13]} == {("incomplete", "n2")}


def test_a_missing_segment_is_found(audited: Audited) -> None:
    """A file that is gone is a range of damaged bytes, not the end of the log."""
    violations = audited.found("segments")
    assert ("lost", 0, "n1") in violations[1]
    assert ("incomplete", 0, "n1") in violations[13]


def test_a_history_that_clients_should_not_have_seen_is_found(
    audited: Audited,
) -> None:
    """Reads of REFUSED, unknown and skipped messages, and of older offsets, are found."""
    assert audited.found("seen") == {
        2: {
            ("refused", REFUSED, ALL),
            ("refused", REFUSED, None),
            ("phantom", GHOST, None),
            ("phantom", OVERTAKING, None),  # read before it was sent
        },
        4: {
            ("overtaken", OVERTAKING, None),
            ("skipped", None, None),
            ("late", None, None),
            ("vanished", GHOST, None),
        },
    }


def test_what_can_not_be_concluded_is_no_violation(audited: Audited) -> None:
    """Unknown outcomes, repeats, late groups, torn lines and differing tails prove nothing."""
    assert audited.found("inconclusive") == {}
    notes = [
        note.split(":")[0] for note in audited.verdict.notes if note.startswith("inconclusive/")
    ]
    assert notes == ["inconclusive/n0", "inconclusive/n1"]


def test_a_clock_that_falls_blames_nobody(audited: Audited) -> None:
    """A client whose clock fell is named, and no other accused."""
    assert audited.found("fallen") == {}
    assert {note.split(" fell")[0] for note in audited.verdict.notes} >= {
        "the clock of fallen.consumer-1",
        "the clock of fallen.producer-0",
    }
    lost = audited.found("lost")[1]
    assert {message for what, message, _ in lost if what == "lost"} == {REMOVED}


# -- runs whose verdict is not of their own broker alone ------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy.write(RUNS["alone"], tmp_path / "copy")


def audit(session: SparkSession, copy: Copy) -> Verdict:
    return judge_run(session, copy.history, copy.replicas, lambda _: None)


def test_lines_that_are_not_there_hide_no_loss(
    copy: Copy, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torn in the middle of a file, or without a field: nobody knows what they would say. Beside
    them a message was cut out of a log, and all that stood behind it has moved: each is counted as
    what it is, though only the first few are spelled out. The description of the run is missing,
    too: what only a description names is told not to be judged."""
    monkeypatch.setattr("mqspark.verdict.VIOLATIONS_SHOWN_MAX", 3)
    planting.edit_history(copy.history, lambda event: [event] * (event["kind"] != "meta"))
    path = copy.file("producer-0")
    lines = path.read_text().splitlines()
    lines[4], lines[6] = lines[4][:40], lines[6].replace('"crc"', '"cr"')
    path.write_text("\n".join(lines) + "\n" + lines[8][:30])
    copy.remove(["n1"], recompute=True)
    verdict = audit(session, copy)
    lost, authentic = verdict.judgements[:2]
    first = lost.violations[0]
    removed = copy.run.message_id(REMOVED)
    assert (first["what"], first["message_id"], first["replica"]) == ("lost", removed, "n1")
    assert set(lost.kinds) == {"lost", "moved"}
    assert (lost.kinds["lost"], len(lost.violations)) == (1, 3)
    assert lost.kinds["moved"] > 100
    assert lost.count == sum(lost.kinds.values())
    assert verdict.counts["lost"] == 1
    assert authentic.unjudged is not None
    assert authentic.unjudged.startswith("2 lines of alone.producer-0.jsonl can't be read; ")
    assert not verdict.is_undecided
    assert {each.number for each in verdict.judgements if each.unjudged == NO_META} == {14, 16}
    assert any(note.startswith(NO_META) for note in verdict.notes)


def test_a_run_that_goes_on_is_undecided(copy: Copy, session: SparkSession) -> None:
    """A history that was copied during its run is undecided, in spite of thousands of phantoms."""
    for path in copy.history.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        ends = [event["t"] for event in lines if event["kind"] != "end"]
        half = min(ends) + (max(ends) - min(ends)) // 2
        kept = [event for event in lines if event["t"] <= half]
        path.write_text("".join(json.dumps(event) + "\n" for event in kept))
    verdict = audit(session, copy)
    assert verdict.is_undecided
    assert verdict.written().verdict == "undecided"
    authentic = verdict.judgements[1]
    assert authentic.doubted > 0
    assert authentic.unjudged is not None
    assert authentic.unjudged.startswith("the history has no end: its run goes on, or was cut off")


def test_a_client_without_a_file_is_named(copy: Copy, session: SparkSession) -> None:
    """A missing or compressed file of a client is named, as it would look like phantoms."""
    with copy.file("harness").open("a") as file:
        for client in ("alone.producer-0", "alone.producer-7"):
            file.write(json.dumps({"kind": "started", "t": LATER, "client": client}) + "\n")
    with pytest.raises(ConfigError, match=r"no file of alone\.producer-7 is there"):
        audit(session, copy)
    (copy.history / "producer-7.jsonl.gz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"has producer-7\.jsonl\.gz: unpack"):
        audit(session, copy)
