"""Rolling a cluster's secret: which files are taken over, and which wait.

The model has servers that change their files in any order, to anything; whatever they do, each
server signs only with secrets that all others accept.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dledger.errors import ConfigError, FrameError
from dledger.trust.proof import NONCE_BYTES, Acceptor, Dialler, Door
from dledger.trust.rolling import Heard, Secrets, parse, refusal
from dledger.trust.secret import SecretFile, read_secrets
from dledger.trust.signatures import Key
from dledger.trust.users import Keys, User, unwrapped, wrapped_anew
from dledger.trust.wrapping import Wrapping

OLD, NEW, OTHER = (name * 8 for name in (b"old-", b"new-", b"xyz-"))
STEPS = ((OLD,), (OLD, NEW), (NEW, OLD), (NEW,))
DOOR = Door("peer port", (5, "g", 16))


def met(dialler: tuple[bytes, ...], acceptor: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The secrets that two servers find that they share, by a whole handshake. FrameError."""
    first = Dialler(DOOR, "n1", Secrets(*dialler), bytes(NONCE_BYTES))
    second = Acceptor(DOOR, "n0", Secrets(*acceptor), bytes(NONCE_BYTES))
    answer, theirs = second.check(first.hello, first.prove(second.hello, "n0"))
    ours = first.check(answer)
    assert (ours.sending_key, ours.receiving_key) == (theirs.receiving_key, theirs.sending_key)
    return first.shared


def heard(
    name: str, present: tuple[bytes, ...], wanted: tuple[bytes, ...], other: tuple[bytes, ...]
) -> Heard:
    try:
        return Heard(name, met(tuple(dict.fromkeys((*wanted, *present))), other))
    except FrameError as error:
        return Heard(name, None, str(error))


@pytest.mark.parametrize("here", STEPS)
@pytest.mark.parametrize("there", STEPS)
def test_servers_with_any_secret_in_common_prove_to_each_other(
    here: tuple[bytes, ...], there: tuple[bytes, ...]
) -> None:
    """Both ends find the same common secrets, in the acceptor's order; without any, neither gets
    in.
    """
    shared = tuple(secret for secret in there if secret in here)
    if shared:
        assert met(here, there) == shared
    else:
        with pytest.raises(FrameError, match="does not know"):
            met(here, there)


@pytest.mark.parametrize("said", [0, 31, 33, 64, 5 * 32])
def test_proofs_of_any_length_let_nobody_in(said: int) -> None:
    """Half a proof, many proofs, and a right one twice let nobody in."""
    first = Dialler(DOOR, "n1", OLD, bytes(NONCE_BYTES))
    second = Acceptor(DOOR, "n0", Secrets(OLD, NEW), bytes(NONCE_BYTES))
    right = first.prove(second.hello, "n0")
    with pytest.raises(FrameError, match="does not know"):
        second.check(first.hello, (right * 5)[:said])


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_written_into_files_all_accept_what_each_signs_with(seed: int) -> None:
    """Random files at random servers never lock one out: each signs what all accept."""
    rng = random.Random(seed)
    servers = [(OLD,)] * 4
    taken = 0
    for _ in range(60):
        at = rng.randrange(len(servers))
        wanted = tuple(rng.sample((OLD, NEW, OTHER), rng.choice((1, 2))))
        others = [
            heard(f"n{each}", servers[at], wanted, valid)
            for each, valid in enumerate(servers)
            if each != at
        ]
        if refusal(servers[at], wanted, others, ()) is None:
            servers[at] = wanted
            taken += 1
        assert all(one[0] in other for one in servers for other in servers), servers
    assert taken > 0, seed


@pytest.mark.parametrize("seed", range(10))
def test_the_documented_steps_are_taken_in_any_order_of_servers(seed: int) -> None:
    """Servers take each of the three documented steps in any order."""
    rng = random.Random(seed)
    servers = [STEPS[0]] * 4
    for wanted in STEPS[1:]:
        for at in rng.sample(range(4), 4):
            others = [heard("n", servers[at], wanted, valid) for valid in servers]
            assert refusal(servers[at], wanted, others, ()) is None
            servers[at] = wanted


@pytest.mark.parametrize(
    ("present", "wanted", "other", "reason"),
    [
        ((OLD,), (NEW,), (OLD,), "none of the secrets that are in use"),
        ((OLD,), (NEW, OLD), (OLD,), "does not have the first secret"),
        ((OLD, NEW), (NEW,), (OLD, NEW), "still has as its first secret"),
        ((OLD, NEW), (NEW,), None, "does not answer"),
    ],
)
def test_a_step_that_would_lock_a_server_out_waits(
    present: tuple[bytes, ...],
    wanted: tuple[bytes, ...],
    other: tuple[bytes, ...] | None,
    reason: str,
) -> None:
    """The reason names the server and what to do there; no secret is told."""
    has = None if other is None else tuple(each for each in other if each in present + wanted)
    said = refusal(present, wanted, [Heard("member n2", has, "refused")], ())
    assert said is not None
    assert reason in said
    assert not any(secret.decode() in said for secret in STEPS[1])


def test_passwords_stay_readable() -> None:
    """Passwords are readable under either secret, and wrapped anew before the old one goes."""
    user = User("shop", Wrapping(OLD).wrap("shop", "a password"))
    secrets = Secrets(NEW, OLD)
    keys = Keys(secrets)
    key = keys.key(user)
    assert key is not None
    assert key.is_of("a password")
    assert unwrapped(user, (NEW,)) is None
    said = refusal((NEW, OLD), (NEW,), (), [user.name])
    assert said is not None
    assert "'shop'" in said
    anew = wrapped_anew(user, secrets)
    assert anew is not None
    assert unwrapped(anew, (NEW,)) == "a password"
    assert wrapped_anew(anew, secrets) is None
    secrets.valid = (NEW,)
    assert keys.key(user) is None, "a key outlived the secret that had unwrapped it"
    assert keys.key(anew) is not None
    assert [each.is_of("") for each in keys.of_cluster] == [False]
    assert isinstance(keys.of_cluster[0], Key)


def test_a_file_has_secrets_with_an_empty_line_between_them(tmp_path: Path) -> None:
    """A secret of several lines is one, as it was before two were possible."""
    assert parse("a" * 16 + "\n" + "b" * 16 + "\n", "f") == (b"a" * 16 + b"\n" + b"b" * 16,)
    assert parse(f"\n{'a' * 16}\n \n\n{'b' * 16}\n", "f") == (b"a" * 16, b"b" * 16)
    for text in ("", f"{'a' * 16}\n\nshort", "\n\n".join("abc" * 16), f"{'a' * 16}\n\n{'a' * 16}"):
        with pytest.raises(ConfigError, match="secret"):
            parse(text, "f")


def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """A file that can't be used is read again, and its problem goes when it is mended."""
    path = tmp_path / "cluster.secret"
    path.write_bytes(OLD)
    path.chmod(0o600)
    secrets = Secrets(*read_secrets(path))
    file = SecretFile(path, secrets)
    assert file.wanted() is None
    for broken in (b"short", b"\xff" * 40, OLD + b"\n\n" + OLD):
        path.write_bytes(broken)
        assert file.wanted() is None
        assert file.problem
    path.unlink()
    assert file.wanted() is None
    assert secrets.valid == (OLD,)
    path.write_bytes(OLD + b"\n\n" + NEW)
    path.chmod(0o644)
    assert file.wanted() is None, "others can read it"
    path.chmod(0o600)
    assert file.wanted() == (OLD, NEW)
    file.take((OLD, NEW))
    assert secrets.valid == (OLD, NEW)
    assert not file.problem
    assert OLD.decode() not in repr(secrets)
