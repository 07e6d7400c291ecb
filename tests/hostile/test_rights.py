"""A broker that enforces rights, for every code: exactly its rights, all but one, forged
signatures.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from replicas import NOW_MS, Group, Stranger, group
from rights import OPEN, SIGNED, SUPER, requests
from trio.testing import MockClock

from dledger.limits import (
    STRANGERS_NOTED_MAX,
    UNKNOWN_REFUSED_PER_S,
    WRONG_PROOFS_AT_ONCE,
    WRONG_PROOFS_PER_S,
    WRONG_SIGNATURES_MAX,
)
from dledger.log.entry import Kind
from dledger.remoting.bodies.staged import encode_places
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import (
    RegisterProducerHeader,
    RegisterProducerResponseHeader,
    WriteOnceHeader,
    decode_header,
    encode_header,
)
from dledger.trust.policies import Entry
from dledger.trust.signatures import CLUSTER_USER, OWN_SIGNATURE, SIGNATURE, STAMP, Key, Stamp
from dledger.trust.users import User
from dledger.trust.wrapping import Wrapping
from mqbroker.state.control import (
    ClaimProducer,
    DeleteUser,
    PutUser,
    RegisterProducer,
    encode_control,
)
from mqbroker.state.producers import Judged, Producers
from mqbroker.testing.pictured import rows_in
from mqbroker.testing.requests import GROUP, TOPIC, produce_request, send_request, topic_request

WORD = "the word of this cluster"
PASSWORD = "a user's password"  # noqa: S105
REFUSED = ResponseCode.NO_PERMISSION
FAR = "10.0.0.9"
OTHER = "another password"


class Signer:
    """A client of ours that stamps what it sends on one connection."""

    def __init__(self, stranger: Stranger, nonce: str, name: str, key: Key) -> None:
        self.stranger = stranger
        self._nonce, self._name, self._key = nonce, name, key
        self._numbers = itertools.count(1)

    def signed(self, request: Command, *, time_ms: int = NOW_MS) -> Command:
        """The request, with a stamp."""
        self._key.sign(request, self._name, Stamp(self._nonce, next(self._numbers), time_ms))
        return request

    async def ask(self, request: Command) -> Command:
        """The answer to a request with a stamp."""
        return await self.stranger.ask(self.signed(request))

    async def do(self, request: Command) -> Command:
        """The answer to a request with a stamp, which must succeed."""
        return await self.stranger.do(self.signed(request))


async def signer(found: Group, name: str = CLUSTER_USER, key: Key | None = None) -> Signer:
    """A client on a connection of its own; of the cluster unless another user is named."""
    stranger = found.connect(FAR)
    answer = await stranger.ask(Command(Code.SIGN_ON))
    key = key or (Key.of_cluster(WORD.encode()) if name == CLUSTER_USER else Key(PASSWORD))
    return Signer(stranger, str(answer.ext["nonce"]), name, key)


@asynccontextmanager
async def enforcing(tmp_path: Path, **settings: str) -> AsyncIterator[tuple[Group, Signer]]:
    """A broker that enforces, with a topic, a group and a message; and a client of the cluster."""
    settings = {"authorization_mode": "enforce"} | settings
    async with group(tmp_path, d_leger_secret=WORD, **settings) as found:
        cluster = await signer(found)
        body = json.dumps({"groupName": GROUP}).encode()
        made = Command(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        for request in (topic_request(), made, send_request()):
            await cluster.do(request)
        yield found, cluster


@pytest.fixture
async def enforced(tmp_path: Path, mock_clock: MockClock) -> AsyncIterator[tuple[Group, Signer]]:
    async with enforcing(tmp_path) as made:
        yield made


@pytest.fixture
def found(enforced: tuple[Group, Signer]) -> Group:
    """A broker that enforces, with a topic, a group and a message."""
    return enforced[0]


@pytest.fixture
def cluster(enforced: tuple[Group, Signer]) -> Signer:
    """A client of its cluster."""
    return enforced[1]


def put(found: Group, *entries: Entry, **of_user: object) -> None:
    """Make the user u in the log, with these entries."""
    wrapped = Wrapping(WORD.encode()).wrap("u", PASSWORD)
    user = User("u", wrapped, entries=entries)._replace(**of_user)
    found.commit_raw(Kind.CONTROL, encode_control(PutUser(user, NOW_MS)))


def stock(request: Command, name: str = "u", password: str = PASSWORD) -> Command:
    """The request as a stock client signs it."""
    Key(password).sign_as_stock(request, name)
    return request


def allow(need: str) -> Entry:
    """An entry that meets a need, by the first action that is enough."""
    resource, _, actions = need.partition(" ")
    return Entry("Custom", resource, (actions.partition("|")[0],), (), "Allow")


def all_but(need: str) -> list[Entry]:
    """Entries that allow everything but what would meet a need."""
    resource, _, actions = need.partition(" ")
    kinds = [f"{kind}:*" for kind in ("Topic", "Group", "Cluster")]
    everything = [Entry("Custom", kind, ("All",), (), "Allow") for kind in kinds]
    return [*everything, Entry("Custom", resource, tuple(actions.split("|")), (), "Deny")]


def position_of(found: Group) -> int:
    """The position of the first message."""
    queue = found.machine.queues.get(TOPIC, 1)
    assert queue is not None
    return int(queue.read(0, 1)["position"][0])


async def test_each_code_is_asked(
    found: Group,
) -> None:
    """A served code has its line in `rights`, beside the one where it is served."""
    asked = set(requests(0)) | OPEN | SIGNED | SUPER
    assert set(found.broker.handler.table) == asked


async def test_all_rights_but_one_are_too_few(
    found: Group,
) -> None:
    """A user who lacks one right of a code is refused, and nothing is done."""
    position = position_of(found)
    for code, (_, needs) in requests(position).items():
        for need in needs:
            put(found, *all_but(need))
            before = found.machine.applied_index
            stranger = found.connect(FAR)
            answer = await stranger.ask(stock(requests(position)[code][0]))
            assert answer.code == REFUSED, (code.name, need, answer.remark)
            assert "User:u has no permission to access" in str(answer.remark)
            assert found.machine.applied_index == before, code.name
            stranger.close()


async def test_exactly_these_rights_are_enough(
    found: Group,
) -> None:
    """A user with exactly a code's rights is not refused, whatever else the answer says."""
    position = position_of(found)
    for code, (_, needs) in requests(position).items():
        entries: dict[str, Entry] = {}
        for entry in map(allow, needs):
            before = entries.get(entry.resource, entry._replace(actions=()))
            entries[entry.resource] = entry._replace(actions=before.actions + entry.actions)
        put(found, *entries.values())
        stranger = found.connect(FAR)
        answer = await stranger.tell(stock(requests(position)[code][0]))
        assert answer is None or answer.code != REFUSED, (code.name, answer.remark)
        stranger.close()


async def test_codes_that_super_users_alone_may_ask(found: Group, cluster: Signer) -> None:
    """A super user's codes are refused to a user with every right, and suggested to nobody."""
    everything = [
        Entry("Custom", f"{kind}:*", ("All",), (), "Allow")
        for kind in ("Topic", "Group", "Cluster")
    ]
    for code in sorted(SUPER):
        put(found, *everything)
        stranger = found.connect(FAR)
        for request in (Command(code), stock(Command(code))):
            answer = await stranger.ask(request)
            assert answer.code == REFUSED, code.name
        assert "is for super users" in str(answer.remark)
        put(found, is_super=True)
        for answer in (
            await stranger.ask(stock(Command(code))),
            await cluster.ask(Command(code)),
        ):
            assert answer.code != REFUSED, code.name
        stranger.close()
    assert not found.core.guard.observed


async def test_codes_that_any_user_may_ask(found: Group, cluster: Signer) -> None:
    """Codes for any user are refused without one; lists have what the user may read or send to."""
    await cluster.ask(topic_request("Secret"))
    put(found, allow("Topic:Orders Sub"))
    for code in sorted(OPEN | SIGNED):
        stranger = found.connect(FAR)
        answer = await stranger.ask(Command(code))
        assert (answer.code == REFUSED) is (code in SIGNED), code.name
        answer = await stranger.ask(stock(Command(code)))
        assert answer.code != REFUSED, code.name
        stranger.close()
    for user, topics in (("u", {TOPIC}), (CLUSTER_USER, {TOPIC, "Secret"})):
        answer = await (await signer(found, user)).ask(Command(Code.GET_ALL_TOPIC_CONFIG))
        seen = set(json.loads(bytes(answer.payload))["topicConfigTable"])
        assert seen & {TOPIC, "Secret"} == topics


@pytest.mark.parametrize("encoding", HeaderEncoding)
async def test_signatures(
    encoding: HeaderEncoding,
    found: Group,
) -> None:
    """A right signature is served; none, another user's or password's, or a changed one is not."""
    put(found, allow("Topic:Orders Pub"))

    def request(**changed: ExtValue) -> Command:
        made = stock(send_request())
        made.encoding = encoding
        made.ext = {**made.ext, **changed}
        return made

    cases = [
        (request(), ""),
        (send_request(), "username cannot be null."),
        (request(AccessKey="nobody"), "User:nobody is not found."),
        (request(Signature=""), "check signature failed."),
        (request(Signature="not base64!"), "check signature failed."),
        (request(b="Other"), "check signature failed."),
        (request(added="x"), "check signature failed."),
        (stock(send_request(), password=OTHER), "check signature failed."),
    ]
    for asked, expected in cases:
        answer = await found.connect(FAR).ask(asked)
        assert (answer.code, answer.remark or "") == ((REFUSED, expected) if expected else (0, ""))
    changed = request()
    changed.body = b"another body"
    assert (await found.connect(FAR).ask(changed)).code == REFUSED
    put(found, allow("Topic:Orders Pub"), enabled=False)
    answer = await found.connect(FAR).ask(request())
    assert answer.remark == "User:u is disabled."


async def test_a_stamped_request_is_good_for_one_place(
    found: Group,
) -> None:
    """A stamped request is refused again: elsewhere, later, unstamped, or as another code.

    A user may be set to have only such.
    """
    put(found, allow("Topic:Orders Pub"), fresh=True)
    client = await signer(found, "u")
    sent = client.signed(produce_request("a"))

    async def refused(request: Command, stranger: Stranger | None = None) -> str:
        answer = await (stranger or client.stranger).ask(request)
        assert answer.code == REFUSED
        return str(answer.remark)

    def copy(code: int = sent.code, **changed: ExtValue) -> Command:
        ext = {name: value for name, value in (sent.ext | changed).items() if value is not None}
        return Command(code, ext, sent.body)

    await client.stranger.do(copy())
    assert "sent before" in await refused(copy())
    assert "another connection" in await refused(copy(), found.connect(FAR))
    assert "check signature" in await refused(copy(code=Code.SEND_MESSAGE_V2))
    assert "check signature" in await refused(copy(**{STAMP: "x:9:9"}))
    assert "check signature" in await refused(copy(**{OWN_SIGNATURE: None, STAMP: None}))
    old = client.signed(produce_request("b"), time_ms=NOW_MS - 61_000)
    assert "look at the clocks" in await refused(old)
    assert "sent again" in await refused(stock(send_request()))
    put(found, allow("Topic:Orders Pub"))
    assert "sent before" in await refused(copy())
    await client.stranger.do(stock(send_request()))


@pytest.mark.parametrize("stamped", [True, False])
async def test_a_signature_that_is_cut_is_none(stamped: bool, found: Group) -> None:
    """A signature, stamp or name that is cut anywhere is refused, and nothing is stored."""
    put(found, allow("Topic:Orders Pub"))
    before = found.machine.applied_index
    fields = (OWN_SIGNATURE, STAMP, "AccessKey") if stamped else (SIGNATURE, "AccessKey")
    for field in fields:
        for kept in (0, 1, 7, -2, -1):
            client = await signer(found, "u")
            made = send_request()
            request = client.signed(made) if stamped else stock(made)
            whole = str(request.ext[field])
            if whole[:kept] == whole:
                continue  # a name of one letter
            request.ext = {**request.ext, field: whole[:kept]}
            assert (await client.stranger.ask(request)).code == REFUSED, (field, kept)
            client.stranger.close()
    assert found.machine.applied_index == before


async def test_a_flood_of_wrong_signatures_ends_its_connection(found: Group) -> None:
    """A connection with too many wrong signatures is closed."""
    put(found)
    stranger = found.connect(FAR)
    for _ in range(WRONG_SIGNATURES_MAX):
        assert not stranger.connection.closed
        await stranger.tell(stock(send_request(), password=OTHER))
    assert stranger.connection.closed


async def test_one_address_has_a_bounded_pace_of_wrong_signatures(
    found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address has a bounded rate of wrong signatures, over all connections, users and bodies.

    Others are served at once, and so is a user of that address who signed rightly on its
    connection.
    """
    verified, verifies = list[Command](), Key.verifies

    def counted(key: Key, request: Command) -> bool:
        verified.append(request)
        return verifies(key, request)

    async def code(stranger: Stranger, **signed: str) -> int:
        answer = await stranger.ask(stock(send_request(), **signed))
        return answer.code

    put(found, Entry("Custom", "Topic:*", ("Pub",), (), "Allow"))
    early = found.connect(FAR)
    assert await code(early) == ResponseCode.SUCCESS
    monkeypatch.setattr(Key, "verifies", counted)
    for _ in range(WRONG_PROOFS_AT_ONCE // 4):
        stranger = found.connect(FAR)
        for name in ("u", "nobody", CLUSTER_USER, "u", "u"):
            assert await code(stranger, name=name, password=OTHER) == REFUSED
    assert len(verified) <= WRONG_PROOFS_AT_ONCE
    assert await code(found.connect(FAR)) == REFUSED
    seen = len(verified)
    assert await code(early) == ResponseCode.SUCCESS
    assert await code(found.connect("10.0.0.10")) == ResponseCode.SUCCESS
    assert await code(early, name=CLUSTER_USER, password=OTHER) == REFUSED
    assert len(verified) == seen + 2
    await found.pass_time(2 * WRONG_PROOFS_AT_ONCE / WRONG_PROOFS_PER_S)
    assert await code(found.connect(FAR)) == ResponseCode.SUCCESS


@pytest.mark.parametrize("signed", ["wrongly", "not at all", "by nobody"])
async def test_refusals_of_one_address_have_a_pace(found: Group, signed: str) -> None:
    """An address's refused requests are read at a bounded rate, over all its connections.

    Others are answered at once, and so is a user of that address who signed rightly before.
    """

    def request(opaque: int) -> bytes:
        made = send_request()
        if signed != "not at all":
            stock(made, "u" if signed == "wrongly" else "nobody", OTHER)
        made.opaque = opaque
        return b"".join(encode_frame(made))

    put(found, Entry("Custom", "Topic:*", ("Pub",), (), "Allow"))
    early = found.connect(FAR)
    await early.ask(stock(send_request()))
    many = [found.connect(FAR) for _ in range(40)]
    chunk, refused = b"".join(map(request, range(1, 61))), 0
    for each in many:
        refused += len(await each.write(chunk))
    for _ in range(2):
        await found.pass_time(0.5)
        for each in many:
            refused += len(await each.answers())
        for served in (early, found.connect("10.0.0.10")):
            await served.do(stock(send_request()))
    bound = 2 * UNKNOWN_REFUSED_PER_S + len(many)
    closed_at = WRONG_SIGNATURES_MAX * len(many)
    assert min(bound, closed_at) * 0.9 < refused <= bound


async def test_what_belongs_to_a_group_or_a_topic(
    found: Group,
) -> None:
    """%RETRY%g and %DLQ%g are the group's; a policy may name the dead letters' topic instead; parts
    of large bodies are their topic's; traces are everybody's."""
    cases = [
        ("%RETRY%C", "Group:C Sub", True),
        ("%RETRY%C_Orders", "Group:C Sub", True),
        ("%RETRY%C", "Topic:%RETRY%C Pub", False),
        ("%DLQ%C", "Group:C Sub", True),
        ("%DLQ%C", "Topic:%DLQ%C Pub", True),
        ("%DLQ%C", "Group:D Sub", False),
        ("%PARTS%Orders", "Topic:Orders Pub", True),
        ("%PARTS%Orders", "Topic:%PARTS%Orders Pub", False),
        ("RMQ_SYS_TRACE_TOPIC", "Topic:Orders Pub", True),
    ]
    for name, right, expected in cases:
        put(found, allow(right))
        answer = await found.connect(FAR).ask(stock(send_request(b=name)))
        assert (answer.code != REFUSED) is expected, (name, right, answer.remark)


async def test_nothing_else_lets_anybody_in(tmp_path: Path, mock_clock: MockClock) -> None:
    """An address, a member's claim, and the cluster's own name give no rights."""
    claims: Iterator[dict[str, ExtValue]] = iter(
        (
            {},
            {"forwardedBy": "n1", "forwardedAdmin": True, "forwardedUser": CLUSTER_USER},
            {"forwardedBy": "n1", "forwardedUser": "u", "dledgerTag": "00" * 16},
            {"proven": []},
            {"AccessKey": CLUSTER_USER, SIGNATURE: "AAAA"},
            {"AccessKey": CLUSTER_USER, OWN_SIGNATURE: "", STAMP: "a:1:1"},
        )
    )
    async with enforcing(tmp_path, admin_addresses="*") as (found, _):
        put(found, is_super=True)
        for claim in claims:
            answer = await found.connect("127.0.0.1").ask(Command(Code.CLEAN_UNUSED_TOPIC, claim))
            assert answer.code == REFUSED, claim


async def test_observing_refuses_nothing_and_notes_what_would_be(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """Observing serves all, and notes what each user would need, with how often."""
    async with enforcing(tmp_path, authorization_mode="observe") as (found, _):
        put(found, allow("Topic:Orders Sub"))
        for _ in range(3):
            await found.connect(FAR).do(stock(send_request()))
        near = found.connect()
        answer = await near.ask(Command(Code.LIST_OBSERVED))
        row, asked = json.loads(bytes(answer.payload))
        assert (asked["source"], asked["reason"]) == ("127.0.0.1", "username cannot be null.")
        assert row == {
            "user": "u",
            "kind": "Topic",
            "name": TOPIC,
            "actions": ["Pub"],
            "count": 3,
            "source": "",
            "claimed": "",
            "reason": "",
        }
        for unknown in (send_request(), stock(send_request(), password=OTHER)):
            await found.connect(FAR).do(unknown)
        assert found.core.guard.strangers == {
            ("127.0.0.1", ""): (1, "username cannot be null."),
            (FAR, ""): (1, "username cannot be null."),
            (FAR, "u"): (1, "check signature failed."),
        }
        for number in range(STRANGERS_NOTED_MAX + 9):
            await found.connect(FAR).ask(stock(send_request(), f"nobody{number}"))
        assert len(found.core.guard.strangers) == STRANGERS_NOTED_MAX


async def test_super_users_are_changed_by_super_users_and_one_stays(
    found: Group, cluster: Signer
) -> None:
    """A super user is made by super users alone, and the last enabled one stays."""

    async def told(asker: Signer, code: Code, content: object = None) -> tuple[int, str]:
        body = b"" if content is None else json.dumps(content).encode()
        answer = await asker.ask(Command(code, {"username": "root"}, body))
        return answer.code, str(answer.remark)

    new = {"password": "p", "userType": "Super"}
    put(found, allow("Cluster:DefaultCluster Update"))
    user = await signer(found, "u")
    code, remark = await told(user, Code.CREATE_USER, new)
    assert (code, remark) == (1, "The super user can only be create by super user")
    assert await told(cluster, Code.CREATE_USER, new) == (0, "None")
    for code, content in (
        (Code.UPDATE_USER, {"password": "q"}),
        (Code.UPDATE_USER, {"userStatus": "disable"}),
        (Code.DELETE_USER, None),
    ):
        refused, remark = await told(user, code, content)
        assert refused == REFUSED
        assert "by super user" in remark
    for code, content in (
        (Code.UPDATE_USER, {"userStatus": "disable"}),
        (Code.UPDATE_USER, {"userType": "Normal"}),
        (Code.DELETE_USER, None),
    ):
        refused, remark = await told(cluster, code, content)
        assert refused == REFUSED
        assert "last enabled super user" in remark
    put(found, is_super=True)
    assert await told(cluster, Code.DELETE_USER) == (0, "None")


async def test_only_a_super_user_ends_the_enforcing(found: Group, cluster: Signer) -> None:
    """Only a super user ends the enforcing, since settings would give all other rights."""
    put(found, allow("Cluster:DefaultCluster Update"))
    user = await signer(found, "u")
    for body, code in ((b"defaultTopicQueueNums=4", 0), (b"authorizationMode=off", REFUSED)):
        assert (await user.ask(Command(Code.UPDATE_BROKER_CONFIG, {}, body))).code == code
    put(found, is_super=True)
    for mode in ("observe", "enforce", "off"):
        body = f"authorizationMode={mode}".encode()
        asker = user if mode != "enforce" else cluster
        answer = await asker.ask(Command(Code.UPDATE_BROKER_CONFIG, {}, body))
        assert (answer.code, found.core.guard.mode) == (0, mode), answer.remark


def user_entry(name: str, *, is_super: bool = False) -> bytes:
    """An entry that makes a user who may do everything with each topic and group."""
    everything = [
        Entry("Custom", f"{kind}:*", ("All",), (), "Allow") for kind in ("Topic", "Group")
    ]
    wrapped = Wrapping(WORD.encode()).wrap(name, PASSWORD)
    user = User(name, wrapped, is_super=is_super, entries=tuple(everything))
    return encode_control(PutUser(user, NOW_MS))


def registering(instance: str) -> Command:
    """The name "bills" is wanted."""
    header = RegisterProducerHeader(producer_name="bills", instance=instance)
    return Command(Code.REGISTER_PRODUCER, encode_header(header))


def writing(epoch: int, sequence: int) -> Command:
    """A write under that name, of an offset alone."""
    header = WriteOnceHeader(
        producer_name="bills",
        epoch=epoch,
        stream=0,
        sequence=sequence,
        parts=[],
        group=GROUP,
        moves=[(TOPIC, 1, sequence, sequence, None)],
    )
    return Command(Code.WRITE_ONCE, encode_header(header))


def deciding(epoch: int, batch: int) -> Command:
    """A decision under that name, of a batch that has no rows."""
    content = encode_places({})
    header = WriteOnceHeader(
        producer_name="bills",
        epoch=epoch,
        stream=1,
        sequence=batch,
        parts=[],
        group="",
        moves=[],
        batch=batch,
        content_size=len(content),
    )
    return Command(Code.WRITE_ONCE, encode_header(header), content)


def staging(name: str) -> Command:
    """A row is staged for a batch of a producer's name."""
    request = produce_request("x")
    extra: dict[str, ExtValue] = {"producerName": name, "epoch": 1, "batch": 0, "home": "broker-a"}
    return Command(Code.STAGE, {**request.ext, **extra}, request.payload)


async def test_a_producers_name_is_its_users(found: Group, cluster: Signer) -> None:
    """A producer's name belongs to its user, and others can't use or fence it.

    Another user with the same rights neither fences it nor writes, stages or decides under it, with
    the right epoch or any; a super user and the secret may, and it stays its user's. Where nobody
    has a name, each user stages in a share of its own. A name is free once that user is gone. A
    snapshot and the log itself keep it alike.
    """
    for name in ("ann", "bob", "root"):
        found.commit_raw(Kind.CONTROL, user_entry(name, is_super=name == "root"))
    stranger = found.connect(FAR)

    async def ask(request: Command, name: str) -> Command:
        return await stranger.ask(stock(request, name))

    def epoch_of(answer: Command) -> int:
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return decode_header(RegisterProducerResponseHeader, answer).epoch

    epoch = epoch_of(await ask(registering("a"), "ann"))
    before = found.machine.applied_index
    for request in (
        *(registering("b"), writing(epoch, 0), writing(epoch + 1, 0)),
        *(deciding(epoch, 0), deciding(epoch + 1, 9), staging("bills")),
    ):
        refused = await ask(request, "bob")
        assert refused.code == REFUSED
        assert "'bills' belongs to another user" in str(refused.remark)
    assert found.machine.applied_index == before
    assert (await ask(writing(epoch, 0), "ann")).code == ResponseCode.SUCCESS
    assert (await ask(deciding(epoch, 0), "ann")).code == ResponseCode.SUCCESS
    assert (await ask(deciding(epoch, 0), "ann")).code == ResponseCode.BATCH_DECIDED
    for name, user in (("bills", "ann"), ("bills", "root"), ("new", "ann"), ("new", "bob")):
        assert (await ask(staging(name), user)).code == ResponseCode.SUCCESS
    shares = found.machine.halves.owners.rows_by(1)
    assert shares == {
        "%STAGED%ann bills": 1, "%STAGED%root bills": 1, "%STAGED%ann new": 1,
        "%STAGED%bob new": 1,
    }  # fmt: skip
    by_root = epoch_of(await ask(registering("c"), "root"))
    assert (await ask(writing(epoch, 1), "ann")).code == ResponseCode.PRODUCER_FENCED
    assert by_root < epoch_of(await cluster.ask(registering("d")))
    assert found.machine.producers.owner("bills") == "ann"
    assert (await ask(registering("e"), "bob")).code == REFUSED
    rows, owners = rows_in(found.machine.producers.picture()), found.machine.producers.owners()
    again = Producers()
    again.restore(rows)
    again.give(owners)
    assert (rows_in(again.picture()), again.owners()) == (rows, {"bills": "ann"})

    found.commit_raw(Kind.CONTROL, encode_control(DeleteUser("ann", NOW_MS)))
    epoch_of(await ask(registering("f"), "bob"))
    assert found.machine.producers.owner("bills") == "bob"


async def test_two_users_who_want_one_name_at_once(
    found: Group,
) -> None:
    """The log decides between two users who ask for one name at once, alike on each replica."""
    for name in ("ann", "bob"):
        found.commit_raw(Kind.CONTROL, user_entry(name))
    change = found.machine.change
    claims = [ClaimProducer("bills", name, name, False, NOW_MS) for name in ("ann", "bob")]
    assert change(claims[0], 100) == 100
    assert change(claims[1], 101) is Judged.TAKEN
    assert change(claims[1].__class__("bills", "b", "bob", True, NOW_MS), 102) == 102
    assert found.machine.producers.owner("bills") == "ann"
    assert change(RegisterProducer("bills", "nobody's", NOW_MS), 103) == 103
    assert found.machine.producers.owner("bills") == "ann"
