"""The doctor's checks, each on facts that show a fault, and on facts that don't."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from answers import group_info
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput, ConfigError
from dledger.limits import DAY_S, TLS_EXPIRES_SOON_S
from dledger.remoting.headers import GroupInfoResponseHeader
from mqclient import limits
from mqclient.admin.doctor.bundle import ends_of_logs, read_bundle, write_bundle
from mqclient.admin.doctor.checks import CHECKS, findings, not_asked
from mqclient.admin.doctor.facts import (
    BrokerFacts,
    DeadLetterFacts,
    Facts,
    GroupFacts,
    NamesrvFacts,
    Unasked,
)
from mqclient.admin.doctor.gathering import without_secrets
from mqclient.commands.doctor import doctor

NOW_MS = 1_800_000_000_000
ADDRESSES = {0: "10.0.0.1:10911", 1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
NAMESRV = "10.0.0.9:9876"


def info(node: int, **changes: Any) -> GroupInfoResponseHeader:
    """The group's state as a member of three tells it; n0 leads."""
    members = [(f"n{each}", address) for each, address in ADDRESSES.items()]
    role = "follower" if node else "leader"
    healthy = {"node_id": f"n{node}", "role": role, "term": 7, "members": members}
    return group_info(1_000_000, **healthy | {"set_aside": 0, "faults": 0} | changes)


def broker(node: int, **changes: Any) -> BrokerFacts:
    """A healthy member, with changes."""
    healthy = BrokerFacts(
        "C",
        "broker-a",
        ADDRESSES[node],
        info=info(node),
        figures={
            "dledgerVersion": "1.0",
            "commitLogDiskRatio": "0.5000",
            "appliedIndex": "1000000",
            "stateSavedIndex": "990000",
            "logDigests": "983040:0000aaaa 1000000:0000bbbb",
        },
        config={"diskSpaceWarningLevelRatio": "90", "messageDelayLevel": "1s"},
        clock_ahead_ms=3.0,
        clock_unsure_ms=1.0,
        tables={"topics": "a", "users": "b"},
        tables_index=1_000_000,
    )
    return msgspec.structs.replace(healthy, **changes)


def with_figures(node: int, **figures: str) -> BrokerFacts:
    """A member with other figures."""
    found = broker(node)
    return msgspec.structs.replace(found, figures={**found.figures, **figures})


def facts(*brokers: BrokerFacts, **changes: Any) -> Facts:
    """A cluster of three members, some of them replaced."""
    others = {each.address: each for each in map(broker, ADDRESSES)}
    others |= {each.address: each for each in brokers}
    healthy = Facts(
        NOW_MS,
        "1.0",
        (NamesrvFacts(NAMESRV, None, {"broker-a": ADDRESSES}),),
        tuple(others.values()),
    )
    return msgspec.structs.replace(healthy, **changes)


def namesrv(**changes: Any) -> tuple[NamesrvFacts, ...]:
    """The name server, and another one."""
    known = {"broker-a": ADDRESSES}
    other = msgspec.structs.replace(NamesrvFacts("10.0.0.8:9876", None, known), **changes)
    return NamesrvFacts(NAMESRV, None, known), other


def test_a_healthy_cluster_has_no_finding() -> None:
    """A healthy cluster has no finding, nor has one without any server."""
    assert findings(facts()) == ()
    assert findings(Facts(NOW_MS, "1.0")) == ()
    assert not_asked(facts()) == ()


END_S = NOW_MS / 1000 + TLS_EXPIRES_SOON_S
BROKEN: dict[str, tuple[Callable[[], Facts], str]] = {
    "name-server-away": (
        lambda: facts(name_servers=namesrv(problem="connection refused")),
        "10.0.0.8:9876: the name server does not answer: connection refused",
    ),
    "address-silent": (
        lambda: facts(BrokerFacts("C", "broker-a", ADDRESSES[2], problem="no answer")),
        "broker-a 10.0.0.3:10911: the address that clients are told for it does not answer",
    ),
    "group-away": (
        lambda: facts(away={"broker-b": "C"}),
        "broker-b: no member of this broker group of C is registered",
    ),
    "not-registered": (
        lambda: facts(
            name_servers=namesrv(brokers={"broker-a": {0: ADDRESSES[0], 2: ADDRESSES[2]}})
        ),
        "broker-a 10.0.0.2:10911: it runs, and not known to: 10.0.0.8:9876",
    ),
    "no-leader": (
        lambda: facts(broker(0, info=info(0, role="candidate"))),
        "broker-a: 3 of 3 members answer, and none of them leads",
    ),
    "follower-behind": (
        lambda: facts(broker(1, info=info(1, last_index=980_000))),
        "broker-a n1: it lacks 20000 entries",
    ),
    "replicas-differ": (
        lambda: facts(broker(2, tables={"topics": "other", "users": "b"})),
        "broker-a n0, broker-a n2: they hold different topics after the same entry, 1000000",
    ),
    "entries-set-aside": (
        lambda: facts(broker(1, info=info(1, set_aside=2))),
        "broker-a n1: 2 entries of the log have no effect",
    ),
    "faults": (
        lambda: facts(broker(1, info=info(1, faults=3))),
        "broker-a n1: 3 requests since its start met an error",
    ),
    "disk-fills": (
        lambda: facts(with_figures(2, commitLogDiskRatio="0.9300")),
        "broker-a n2: the disk of its store is 93.0 % full (it warns above 75 %): no messages are",
    ),
    "snapshot-old": (
        lambda: facts(with_figures(1, stateSavedIndex="700000")),
        "broker-a n1: its state was saved 300000 entries ago",
    ),
    "clocks-apart": (
        lambda: facts(broker(2, clock_ahead_ms=-2_000.0)),
        "broker-a n0, broker-a n2: their clocks are 2.0 s apart, and that of broker-a n0 is ahead",
    ),
    "versions-mixed": (
        lambda: facts(with_figures(0, dledgerVersion="1.1")),
        "broker-a: its members run different versions: 1.0: broker-a n1, broker-a n2; 1.1: "
        "broker-a n0",
    ),
    "config-differs": (
        lambda: facts(broker(2, config={"messageDelayLevel": "5s"})),
        "broker-a: members have different messageDelayLevel",
    ),
    "certificate-ends": (
        lambda: facts(broker(0, certificate_ends_s=END_S - DAY_S)),
        "broker-a n0: its certificate ends in 13 days",
    ),
    "subscriptions-differ": (
        lambda: facts(differing=(GroupFacts("G", "broker-a", {"a": "[A *]", "b": "[B *]"}),)),
        "group G on broker-a: its members do not subscribe to the same: a wants [A *]; b wants",
    ),
    "dead-letters-grow": (
        lambda: facts(dead_letters=(DeadLetterFacts("G", "broker-a", 4, NOW_MS - 60_000),)),
        "group G on broker-a: it has 4 dead letters, the last one 60 s old",
    ),
}


@pytest.mark.parametrize("check", BROKEN)
def test_what_is_wrong_is_found_with_its_place_and_its_remedy(check: str) -> None:
    """A fault is found by its own check and no other, with its place and a remedy."""
    make, told = BROKEN[check]
    found = findings(make())
    assert {each.check for each in found} == {check}
    assert any(f"{each.where}: {each.what}".startswith(told) for each in found), found
    assert all(each.remedy for each in found)


def test_every_check_is_shown_to_find_something() -> None:
    """Each check of the list has facts here that it finds."""
    named = {name for check in CHECKS for name in check.name.split(", ")}
    assert named == set(BROKEN)


UNREACHED = info(0, unreached=(("n2", "connection refused"),))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (facts(broker(0, info=UNREACHED)), "broker-a n2: the leader can't connect to it: conn"),
        (facts(broker(1, info=info(1, counted=False))), "broker-a n1: its copy is not complete"),
        (facts(broker(1, info=info(1, fenced="EIO"))), "broker-a n1: it takes no further part: E"),
        (
            facts(with_figures(1, logDigests="983040:0000aaab 999999:0000bbbb")),
            "broker-a n0, broker-a n1: their logs differ, at entry 983040 or before",
        ),
        (
            facts(name_servers=namesrv(certificate_ends_s=END_S - 20 * DAY_S)),
            "name server 10.0.0.8:9876: its certificate has ended",
        ),
        (
            facts(with_figures(2, commitLogDiskRatio="0.8000")),
            "broker-a n2: the disk of its store is 80.0 % full (it warns above 75 %)",
        ),
    ],
)
def test_a_check_knows_more_than_one_way_to_be_wrong(wrong: Facts, told: str) -> None:
    """A check with several ways to be wrong has words for each."""
    found = [f"{each.where}: {each.what}" for each in findings(wrong)]
    assert [each for each in found if each.startswith(told)], found


@pytest.mark.parametrize(
    "harmless",
    [
        facts(broker(1, info=info(1, last_index=999_000))),
        facts(broker(2, tables={"topics": "other"}, tables_index=999_999)),
        facts(with_figures(1, logDigests="")),
        facts(
            with_figures(1, commitLogDiskRatio="NaN", stateSavedIndex="soon", logDigests="x:y z")
        ),
        facts(broker(2, clock_ahead_ms=-2_000.0, clock_unsure_ms=3_000.0)),
        facts(broker(2, clock_ahead_ms=None)),
        facts(broker(0, certificate_ends_s=END_S + 1)),
        facts(dead_letters=(DeadLetterFacts("G", "broker-a", 4, NOW_MS - 7_200_000),)),
        facts(dead_letters=(DeadLetterFacts("G", "broker-a", 0, NOW_MS),)),
    ],
)
def test_a_check_says_nothing_of_what_may_be_well(harmless: Facts) -> None:
    """A check is silent within the cost of asking, a moment's difference, or without a figure."""
    assert findings(harmless) == ()


def test_what_could_not_be_asked_is_told() -> None:
    """Questions without an answer are named, and states that changed during the comparison."""
    moved = facts(
        broker(2, tables_index=1_000_001), unasked=(Unasked("the config of x", "no answer"),)
    )
    assert not_asked(moved) == (
        "not asked: the config of x: no answer",
        "not compared: the states of broker-a's members, which changed meanwhile",
    )


def test_configs_are_passed_on_without_secrets() -> None:
    """Configs are passed on without secrets, whatever they are called; file names stay."""
    config = {"secretKey": "s", "tls.key.password": "p", "secretFile": "/s", "brokerName": "b"}
    hidden = "******"
    assert without_secrets(config | {"dLegerSecret": ""}) == {
        "secretKey": hidden,
        "tls.key.password": hidden,
        "secretFile": "/s",
        "brokerName": "b",
        "dLegerSecret": "",
    }


def test_a_bundle_is_judged_as_the_cluster_was(tmp_path: Path) -> None:
    """A bundle gives back all facts; only its user may read it, and it replaces no file."""
    path, log = tmp_path / "bundle.tar.gz", tmp_path / "broker.log"
    log.write_bytes(b"x" * 100 + b"y" * limits.BUNDLE_LOG_BYTES)
    for make, _ in BROKEN.values():
        path.unlink(missing_ok=True)
        write_bundle(path, make(), ends_of_logs([log]))
        assert read_bundle(path) == make()
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        (entry,) = [each for each in archive.getmembers() if each.name == "logs/0-broker.log"]
        assert entry.size == limits.BUNDLE_LOG_BYTES
    with pytest.raises(ConfigError, match="exists"):
        write_bundle(path, facts(), {})


def archive_of(*entries: tarfile.TarInfo, content: bytes = b"") -> bytes:
    """A gzipped archive with entries that may be anything."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """An entry of a kind, which may link to another place."""
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not"),
        (b"plain text", "not a gzipped archive"),
        (gzip.compress(b"x" * 2000), "not an archive"),
        (gzip.compress(b"x" * 2000)[:-9], "not a gzipped archive"),
        (gzip.compress(bytes(limits.BUNDLE_BYTES_MAX + 10)), "unpacks to more than"),
        (archive_of(entry("other.json"), content=b"{}"), "has no facts.json"),
        (archive_of(entry("../facts.json"), content=b"{}"), "has no facts.json"),
        (archive_of(entry("facts.json", tarfile.SYMTYPE, "/etc/passwd")), "has no facts.json"),
        (archive_of(entry("facts.json", tarfile.LNKTYPE, "facts.json")), "has no facts.json"),
        (archive_of(entry("facts.json", tarfile.FIFOTYPE)), "has no facts.json"),
        (archive_of(entry("facts.json"), content=b"{}"), "asked_ms"),
        (archive_of(entry("facts.json"), content=b"[" * 100_000), "not an archive"),
        (archive_of(entry("facts.json"), content=b'{"asked_ms":1e400}'), "not an archive"),
        (archive_of(*map(entry, map(str, range(600)))), "has no facts.json"),
    ],
    ids=map(str, range(14)),
)
def test_an_archive_that_is_not_ours_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    """A foreign archive is refused with its name, and nothing is written or unpacked."""
    path = tmp_path / "foreign.tar.gz"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=told):
        read_bundle(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe or a folder in place of an archive or a log is refused at once."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "none"):
        with pytest.raises(ConfigError):
            read_bundle(tmp_path / name)
        with pytest.raises(ConfigError):
            ends_of_logs([tmp_path / name])


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_no_damage_of_an_archive_ends_otherwise(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int
) -> None:
    """A damaged archive is read or refused, with the damage before or after compression."""
    path = tmp_path_factory.getbasetemp() / "damaged.tar.gz"
    path.unlink(missing_ok=True)
    write_bundle(path, facts(), {})
    for damage in (lambda raw: raw, gzip.decompress):
        raw = bytearray(damage(path.read_bytes()))
        raw[place % len(raw)] = byte
        del raw[len(raw) - cut % len(raw) :]
        other = path.with_name("other.tar.gz")
        other.write_bytes(raw if damage is not gzip.decompress else gzip.compress(bytes(raw)))
        try:
            judged = findings(read_bundle(other))
        except BadInput:
            continue
        assert all(each.remedy for each in judged)


ODD = (
    -1,
    2**63,
    10**30,
    1e308,
    -1e308,
    "9" * 6000,
    "nan",
    "\u0663:x",
    "",
    "\x1b[31m",
    None,
    [],
    {},
)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in a document."""
    yield way
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in inside:
            yield from places(each, (*way, key))


DOCUMENT = msgspec.json.encode(
    facts(
        broker(0, certificate_ends_s=END_S),
        dead_letters=(DeadLetterFacts("G", "broker-a", 4, NOW_MS),),
        differing=(GroupFacts("G", "broker-a", {"a": "x"}),),
    )
)


@given(st.data())
def test_no_value_of_facts_ends_a_check(data: st.DataObject) -> None:
    """A bundle with any value in place of any other is refused, or judged and printed."""
    document = msgspec.json.decode(DOCUMENT)
    for _ in range(data.draw(st.integers(1, 4))):
        *way, last = data.draw(st.sampled_from([each for each in places(document) if each]))
        inside = document
        for key in way:
            inside = inside[key]
        inside[last] = data.draw(st.sampled_from(ODD))
    content = archive_of(entry("facts.json"), content=msgspec.json.encode(document))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "odd.tar.gz")
        path.write_bytes(content)
        with redirect_stdout(io.StringIO()) as out, suppress(BadInput, SystemExit):
            doctor(offline=path)
    assert "\x1b" not in out.getvalue()
