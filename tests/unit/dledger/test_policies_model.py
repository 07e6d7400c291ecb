"""Policies of a user against RocketMQ's rules, and the content that a signature covers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress

import pytest
from blake3 import blake3
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.limits import LONG_BODY_BYTES
from dledger.remoting.command import Command, ExtValue
from dledger.trust.policies import Entry, Policies
from dledger.trust.rights import Action, Kind, Need
from dledger.trust.signatures import BLAKE3, BODY_HASH, OWN_SIGNATURE, SIGNATURE, Key, Stamp
from dledger.trust.users import User, Users, decoded, encoded
from dledger.trust.wrapping import Wrapping

LONG = bytes(range(128)) * (LONG_BODY_BYTES // 128)
NAMES = st.text("ab%*", max_size=4)
KINDS = st.sampled_from([Kind.TOPIC, Kind.GROUP, Kind.CLUSTER])
ACTIONS = st.sampled_from([Action.PUB, Action.SUB, Action.GET])
SOURCES = st.sampled_from(["10.0.0.1", "10.0.0.0/8", "::1", "::/0", "0.0.0.0/0"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.9.9.9", "::1", "::ffff:10.0.0.1", "fe80::1%eth0"])


@st.composite
def resources(draw: st.DrawFn) -> str:
    """A kind and a name, which may end with a star; or everything."""
    if draw(st.integers(0, 5)) == 0:
        return "*"
    name = draw(NAMES).replace("*", "") + draw(st.sampled_from(["", "*"]))
    assume(name)
    return f"{draw(KINDS)}:{name}"


ENTRIES = st.builds(
    Entry,
    st.sampled_from(["Custom", "Default"]),
    resources(),
    st.lists(ACTIONS | st.just(Action.ALL), min_size=1, max_size=2, unique=True).map(tuple),
    st.lists(SOURCES, max_size=2, unique=True).map(tuple),
    st.sampled_from(["Allow", "Deny"]),
)


def stated(entries: list[Entry], need: Need, source: str) -> tuple[bool, Entry | None]:
    """The decision by the rules in turn: what matches, custom before default, the most specific."""
    address = ipaddress.ip_address(source.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address

    def is_of(entry: Entry) -> bool:
        kind, _, name = entry.resource.partition(":")
        if entry.resource == "*":
            return True
        prefix = name.removesuffix("*")
        fits = need.name.startswith(prefix) if name.endswith("*") else need.name == name
        return kind == need.kind and fits

    def matches(entry: Entry) -> bool:
        asked = {"All", *need.actions} & set(entry.actions)
        networks = [ipaddress.ip_network(each) for each in entry.sources]
        is_from = not networks or any(address in network for network in networks)
        return bool(is_of(entry) and asked and is_from)

    def rank(entry: Entry) -> tuple[bool, bool, bool, int]:
        name = entry.resource.partition(":")[2]
        is_custom, is_whole = entry.policy == "Custom", not name.endswith("*")
        return is_custom, entry.resource != "*", is_whole, len(name)

    best = max(filter(matches, entries), key=rank, default=None)
    return best is not None and best.decision == "Allow", best


@given(
    st.lists(ENTRIES, max_size=8, unique_by=lambda entry: (entry.policy, entry.resource)),
    st.builds(Need, KINDS, NAMES, st.lists(ACTIONS, min_size=1, max_size=2).map(tuple)),
    ADDRESSES,
)
def test_the_entry_that_decides(entries: list[Entry], need: Need, source: str) -> None:
    """The deciding entry is the rules' for any entries, any need and any address."""
    assert Policies(entries).judge(need, source) == stated(entries, need, source)


def test_no_policy_makes_somebody_another_user() -> None:
    """An entry for everything does not allow changing other users."""
    everything = Policies([Entry("Custom", "*", ("All",), (), "Allow")])
    assert not everything.judge(Need(Kind.USER, "ann", (Action.GET,)), "::1").allowed
    assert everything.judge(Need(Kind.TOPIC, "ann", (Action.GET,)), "::1").allowed


def test_the_signature_of_stock_clients() -> None:
    """A stock client's signature is over values by their fields' names, then the body."""
    command = Command(10, {"topic": "T", "b": "2", "AccessKey": "x"}, b"body")
    Key("secret").sign_as_stock(command, "ann")
    content = b"ann" + b"2" + b"T" + b"body"
    expected = base64.b64encode(hmac.digest(b"secret", content, hashlib.sha1)).decode()
    assert command.ext[SIGNATURE] == expected
    assert Key("secret").verifies(command)
    added = {**command.ext, "__ZONE_NAME": "z"}
    assert Key("secret").verifies(Command(10, added, b"body"))
    without = Command(12, {"topic": "T"}, b"")
    Key("secret").sign_as_stock(without, "ann")
    without.ext = {**without.ext, "_UNIQUE_KEY_QUERY": "true"}
    assert Key("secret").verifies(without), "as clients before 4.9.4 sign a query"


VALUES: st.SearchStrategy[ExtValue] = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
)
BODIES = st.binary() | st.integers(0, 3).map(lambda number: bytes([number]) * LONG_BODY_BYTES)
#: A body that is another's hash, and fields that say how it was hashed: what could be mistaken.
HASHES = BODIES.map(lambda body: blake3(body).digest())
FIELDS = st.dictionaries(st.text("ab", min_size=1), VALUES)
COMMANDS = st.builds(Command, st.integers(1, 3), FIELDS, BODIES | HASHES)
KNOWN = st.none() | st.just(BLAKE3)


@given(COMMANDS, COMMANDS, KNOWN, KNOWN)
@example(Command(1, {}, LONG), Command(1, {}, blake3(LONG).digest()), BLAKE3, None)
def test_our_signature_is_good_for_one_request(
    one: Command, other: Command, known: str | None, of_other: str | None
) -> None:
    """A signature differs for another code, field, value or body.

    So it does where joined values are the same, or one body is the other's hash.
    """
    for command, body_hash in ((one, known), (other, of_other)):
        Key("secret").sign(command, "ann", Stamp("nonce", 1, 1), body_hash)
    assert Key("secret").verifies(one)
    assert not Key("another").verifies(one)
    other.ext = {**other.ext, OWN_SIGNATURE: one.ext[OWN_SIGNATURE]}
    same = (one.code, _texts(one), one.body) == (other.code, _texts(other), other.body)
    assert Key("secret").verifies(other) is same


@pytest.mark.parametrize("said", ["", "sha256", "BLAKE3", None, 0, [BLAKE3]])
def test_a_signed_body_is_hashed_as_its_signer_said(said: ExtValue) -> None:
    """A long body is hashed by BLAKE3 if the server knows it, and else by SHA-256.

    A request whose field for that was changed or removed has a wrong signature.
    """
    long, short = Command(1, {}, (LONG[:9], LONG[9:])), Command(1, {}, LONG[1:])
    for command in (long, short):
        Key("secret").sign(command, "ann", Stamp("nonce", 1, 1), BLAKE3)
    old = Command(1, {}, LONG)
    Key("secret").sign(old, "ann", Stamp("nonce", 1, 1))

    assert (long.ext.get(BODY_HASH), short.ext.get(BODY_HASH)) == (BLAKE3, None)
    assert all(Key("secret").verifies(each) for each in (long, short, old))
    assert long.ext[OWN_SIGNATURE] != old.ext[OWN_SIGNATURE]
    long.ext = {**long.ext, BODY_HASH: said}
    assert not Key("secret").verifies(long)
    long.body = blake3(LONG).digest()
    assert not Key("secret").verifies(long)


def _texts(command: Command) -> dict[str, str]:
    known = {True: "true", False: "false"}
    return {
        name: known.get(value, str(value)) if isinstance(value, bool) else str(value)
        for name, value in command.ext.items()
        if value is not None and name != OWN_SIGNATURE
    }


@given(st.text("aé ", max_size=40), st.binary(max_size=3), st.integers(0, 60))
def test_a_wrapped_password(password: str, noise: bytes, at: int) -> None:
    """A wrapped password is unwrapped with the same secret, for the same user, and unchanged."""
    wrapping = Wrapping(b"secret")
    wrapped = wrapping.wrap("ann", password)
    assert wrapping.unwrap("ann", wrapped) == password
    assert wrapping.wrap("ann", password) == wrapped
    for other, name in ((Wrapping(b"another"), "ann"), (wrapping, "bob")):
        with pytest.raises(BadInput, match="set it again"):
            other.unwrap(name, wrapped)
    changed = wrapped[:at] + noise + wrapped[at + len(noise) :]
    assume(changed != wrapped)
    with pytest.raises(BadInput):
        wrapping.unwrap("ann", changed)


def test_a_table_is_told_whole_or_not_at_all() -> None:
    """A user table is decoded whole or refused; equal tables have equal digests."""
    users, again = Users(), Users()
    entry = Entry("Custom", "Topic:a", ("Pub",), (), "Allow")
    for name in ("ann", "bob"):
        users.put(User(name, b"w", entries=(entry,)))
    again.put(User("bob", b"old", is_super=True))
    again.restore(decoded(encoded(users)))
    assert (again.digest(), again.entries, len(again)) == (users.digest(), 2, 2)
    again.delete("bob")
    again.delete("nobody")
    assert (again.entries, again.has_super, again.digest() == users.digest()) == (1, False, False)
    for broken in (b"", b"no zlib", encoded(users)[:-3]):
        with pytest.raises(BadInput):
            decoded(broken)


NAMED = st.sampled_from(["a", "b", "c"])
CHANGES = st.one_of(
    st.tuples(st.just("put"), NAMED, st.booleans()),
    st.tuples(st.just("delete"), NAMED, st.just(True)),
    st.tuples(st.just("restore"), NAMED, st.booleans()),
)


@given(st.lists(CHANGES, max_size=12))
def test_a_digest_is_that_of_the_table_as_it_is(changes: list[tuple[str, str, bool]]) -> None:
    """A kept digest equals that of a table made anew, after each change."""
    table = Users()
    for change, name, is_super in changes:
        if change == "put":
            table.put(User(name, b"", is_super))
        elif change == "delete":
            table.delete(name)
        else:
            table.restore([User(name, b"", is_super)])
        anew = Users()
        anew.restore(table.dump())
        assert table.digest() == anew.digest() == table.digest()
