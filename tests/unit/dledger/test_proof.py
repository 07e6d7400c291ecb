"""Attacks of a stranger on the proof between two servers, none of which lets him in.

Each attempt fails; with the planted bug that leaves out the step that stops it, it gets through.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from dledger.errors import FrameError
from dledger.testing.planted.catalogue import plant
from dledger.trust.proof import (
    NONCE_BYTES,
    Acceptor,
    Dialler,
    Door,
    Hello,
    Session,
    Tags,
    check_hello,
    encode_fields,
)

DOOR = Door("peer port", (4, "g", 16))
WORD = b"right"


def nonce(number: int) -> bytes:
    return bytes([number]) * NONCE_BYTES


def dialler(node_id: str = "n1", secret: bytes = WORD, door: Door = DOOR) -> Dialler:
    return Dialler(door, node_id, secret, nonce(1))


def acceptor(
    node_id: str = "n0", secret: bytes = WORD, door: Door = DOOR, number: int = 2
) -> Acceptor:
    return Acceptor(door, node_id, secret, nonce(number))


def meet(first: Dialler, second: Acceptor) -> tuple[Session, Session]:
    """Exchange all four messages unchanged; both sessions."""
    proof = first.prove(second.hello, second.hello.node_id)
    answer, theirs = second.check(first.hello, proof)
    return first.check(answer), theirs


def is_in(attempt: Callable[[], object]) -> bool:
    """Whether an attempt gets through."""
    try:
        attempt()
    except FrameError:
        return False
    return True


def check_stopped(attempt: Callable[[], object], without: str) -> None:
    """Check that an attempt gets through only when that step is left out."""
    assert not is_in(attempt)
    with plant(without):
        assert is_in(attempt)


def test_two_members_prove_and_share_a_key_for_each_direction() -> None:
    """An end's sending key is the other's receiving key, and the two directions differ."""
    ours, theirs = meet(dialler(), acceptor())
    assert ours.sending_key == theirs.receiving_key
    assert ours.receiving_key == theirs.sending_key
    assert ours.sending_key != ours.receiving_key


def test_every_connection_has_keys_of_its_own() -> None:
    """Another nonce of one side makes other keys."""
    first, _ = meet(dialler(), acceptor(number=2))
    second, _ = meet(dialler(), acceptor(number=3))
    assert not {*first} & {*second}


def test_who_has_another_secret_is_refused_on_either_side() -> None:
    """A dialler and an acceptor with another secret are refused, whatever proof is shown."""
    assert not is_in(lambda: meet(dialler(secret=b"wrong"), acceptor()))
    assert not is_in(lambda: meet(dialler(), acceptor(secret=b"wrong")))
    waiting = dialler()
    waiting.prove(acceptor().hello, "n0")
    for said in (b"", bytes(32), None, 7, "text"):
        with pytest.raises(FrameError, match="does not know the group's secret"):
            waiting.check(said)


def test_the_acceptor_signs_nothing_for_who_has_not_proven() -> None:
    """An acceptor signs nothing before the dialler's proof, which a stranger could pass on."""
    check_stopped(lambda: acceptor().check(Hello("n1", nonce(9)), b"?"), "prove before the dialler")


def test_reflection_a_side_does_not_take_its_own_proof() -> None:
    """A dialler's own proof, which a dialled stranger sends back, is refused."""

    def reflect() -> None:
        member = dialler()
        member.check(member.prove(Hello("n0", nonce(9)), "n0"))

    check_stopped(reflect, "sign no role")


def test_relay_a_member_is_not_led_to_another_one() -> None:
    """n2 dials n1's address. The stranger there passes everything on to n0, under n1's name."""

    def relay() -> None:
        victim, other = dialler("n2"), acceptor("n0")
        proof = victim.prove(Hello("n1", other.hello.nonce), "n1")
        answer, _ = other.check(victim.hello, proof)
        victim.check(answer)

    check_stopped(relay, "sign no ids")


def test_relay_under_a_members_own_name_is_noticed_by_who_dials() -> None:
    """A dialler notices that it met another member than it dialled."""
    check_stopped(lambda: dialler("n2").prove(acceptor("n0").hello, "n1"), "take any acceptor")


def test_swapped_ids_make_another_transcript() -> None:
    """A proof of n1 for n0 does not open n1 for n0."""

    def swap() -> None:
        proof = dialler("n1").prove(Hello("n0", nonce(2)), "n0")
        acceptor("n1").check(Hello("n0", nonce(1)), proof)

    check_stopped(swap, "sign no ids")


def test_replay_an_overheard_proof_opens_nothing() -> None:
    """An old hello and proof are refused, since the acceptor's nonce is another."""

    def replay() -> None:
        heard = dialler()
        proof = heard.prove(acceptor().hello, "n0")
        acceptor(number=3).check(heard.hello, proof)

    check_stopped(replay, "sign no nonces")


@pytest.mark.parametrize(
    "other",
    [
        Door("peer port", (4, "h", 16)),
        Door("peer port", (3, "g", 16)),
        Door("peer port", (4, "g", 32)),
        Door("name server", (4, "g", 16)),
    ],
    ids=["group", "version", "segment-bytes", "door"],
)
def test_a_proof_is_for_one_door_of_one_group(other: Door) -> None:
    """A proof is for one port of one group, although both sides know the same secret."""
    check_stopped(lambda: meet(dialler(door=other), acceptor()), "sign no group")


def test_no_two_transcripts_have_the_same_bytes() -> None:
    """Transcripts of group g, 16 bytes, and of g1, 6 bytes, differ."""
    other = Door("peer port", (4, "g1", 6))
    check_stopped(lambda: meet(dialler(door=other), acceptor()), "write fields without lengths")
    assert encode_fields("1") != encode_fields(1) != encode_fields(b"1")


@pytest.mark.parametrize(
    ("node_id", "said"),
    [
        ("", bytes(32)),
        ("n" * 129, bytes(32)),
        ("é" * 65, bytes(32)),
        ("\ud800", bytes(32)),
        (7, bytes(32)),
        (None, bytes(32)),
        ("n1", b""),
        ("n1", bytes(31)),
        ("n1", bytes(33)),
        ("n1", "x" * 32),
        ("n1", 0),
    ],
)
def test_a_hello_of_the_wrong_kind_or_size_is_refused(node_id: object, said: object) -> None:
    """A hello of the wrong kind or size is refused before any use."""
    with pytest.raises(FrameError):
        check_hello(node_id, said)


# -- frames ------------------------------------------------------------------------------------


def tagged(key: bytes, *frames: bytes) -> list[tuple[bytes, bytes]]:
    """Frames with their tags, as they leave."""
    tags = Tags(key)
    return [(tags.next(frame), frame) for frame in frames]


def take(key: bytes, arriving: list[tuple[bytes, bytes]]) -> None:
    """Check frames in the order in which they arrive."""
    tags = Tags(key)
    for tag, frame in arriving:
        tags.check(tag, frame)


def test_frames_are_taken_in_their_order_and_whatever_their_parts() -> None:
    """A tag is over the bytes, not over how they were handed in."""
    sent = Tags(b"k")
    first, second = sent.next(b"ab", b"", b"c"), sent.next(b"")
    take(b"k", [(first, b"abc"), (second, b"")])


@pytest.mark.parametrize("order", [(0, 0), (0, 2), (1, 0), (2,)], ids=str)
def test_a_frame_that_is_repeated_left_out_or_moved_does_not_check(order: tuple[int, ...]) -> None:
    """A frame that is repeated, left out or moved does not check, since each end counts."""

    def deliver() -> None:
        sent = tagged(b"k", b"0", b"1", b"2")
        take(b"k", [sent[number] for number in order])

    check_stopped(deliver, "count no frames")


def test_a_frame_that_was_changed_does_not_check() -> None:
    """A frame with a changed bit, or a changed or cut tag, does not check."""
    ((tag, frame),) = tagged(b"k", b"frame")
    check_stopped(partial(take, b"k", [(tag, b"frbme")]), "check no tags")
    check_stopped(partial(take, b"k", [(bytes([tag[0] ^ 1]) + tag[1:], frame)]), "check no tags")
    assert not is_in(partial(take, b"k", [(tag[:8], frame)]))
    assert not is_in(partial(take, b"k", [(b"", frame)]))


def test_a_frame_that_is_sent_back_does_not_check() -> None:
    """The two directions have different keys."""

    def reflect() -> None:
        ours, _ = meet(dialler(), acceptor())
        take(ours.receiving_key, tagged(ours.sending_key, b"frame"))

    check_stopped(reflect, "one key for both directions")
