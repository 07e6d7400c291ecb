"""Tags of frames between two nodes cover every byte, and hash a run once for all peers."""

from __future__ import annotations

import random

import pytest

from dledger.errors import FrameError
from dledger.limits import LONG_BODY_BYTES
from dledger.raft.messages import Given, decode_message, encode_message
from dledger.raft.network.frame_tags import FrameTags, RunHash
from dledger.testing.scripted.node import ScriptedNode
from dledger.trust.proof import TAG_BYTES, Session


def two_ends() -> tuple[FrameTags, FrameTags]:
    """Both ends of a connection."""
    hashes = RunHash()
    return FrameTags(Session(b"a", b"b"), hashes), FrameTags(Session(b"b", b"a"), hashes)


def tagged(end: FrameTags, run: bytes | memoryview) -> bytes:
    return b"".join(end.append(encode_message(Given(1, 1, 1, 1, 1, run=run))))


@pytest.mark.parametrize("size", [0, 1, 47, 4096, LONG_BODY_BYTES - 1, LONG_BODY_BYTES, 1 << 20])
def test_a_sealed_frame_is_opened_to_what_was_said(size: int) -> None:
    """A tagged frame is opened to its message, with a run or without."""
    near, far = two_ends()
    for filling in (b"\x01", b"\x02"):
        frame = far.check(memoryview(tagged(near, filling * size)))
        assert decode_message(frame).run == filling * size


def test_a_bit_that_flips_anywhere_is_noticed_by_the_tag_alone() -> None:
    """A flipped bit in lengths, CRC, head, run or tag is noticed without looking at the CRC."""
    for at in range(len(tagged(two_ends()[0], bytes(40)))):
        near, far = two_ends()
        damaged = bytearray(tagged(near, bytes(40)))
        damaged[at] ^= 1
        with pytest.raises(FrameError, match="does not match its tag"):
            far.check(memoryview(damaged))


@pytest.mark.parametrize("size", [LONG_BODY_BYTES - 1, LONG_BODY_BYTES, 1 << 20])
def test_a_bit_that_flips_in_a_long_run_is_noticed(size: int) -> None:
    """A flipped bit of a long run is noticed at its ends, in its middle, and anywhere."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    for bit in (0, 8 * size - 1, 4 * size, *(random.Random(seed).sample(range(8 * size), 20))):
        near, far = two_ends()
        damaged = bytearray(tagged(near, bytes(size)))
        damaged[len(damaged) - TAG_BYTES - size + bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError, match="does not match its tag"):
            far.check(memoryview(damaged))


def test_head_and_run_can_not_be_told_apart_otherwise() -> None:
    """A frame that says that its head is longer, over the same bytes, has another tag."""
    near, far = two_ends()
    frame = bytearray(tagged(near, bytes(40)))
    frame[5] += 8
    with pytest.raises(FrameError, match="does not match its tag"):
        far.check(memoryview(frame))
    near, far = two_ends()
    frame = bytearray(tagged(near, b""))
    with pytest.raises(FrameError, match="does not match its tag"):
        far.check(memoryview(frame[:-TAG_BYTES] + bytes(32) + frame[-TAG_BYTES:]))


def test_a_run_is_hashed_again_unless_it_is_the_same_object() -> None:
    """Equal views of other bytes at the same place have their own hashes."""
    hashes, memory = RunHash(), bytearray(b"first")
    first = memoryview(memory)
    assert hashes.of(first) == hashes.of(first) == RunHash().of(b"first")
    memory[:] = b"other"
    del first
    assert hashes.of(memoryview(memory)) == RunHash().of(b"other")
    assert hashes.of(b"third") == RunHash().of(b"third")


def test_a_leader_keeps_no_run_behind_its_round_of_sending() -> None:
    """A run is hashed once for both peers, and made anew for the next round, after a cut."""
    node = ScriptedNode()
    node.serve("f")
    seen: list[int] = []
    original = node.log.reader.checked_run_of

    def counted(first_index: int, last_index: int) -> memoryview:
        seen.append(first_index)
        return original(first_index, last_index)

    node.log.reader.checked_run_of = counted  # type: ignore[method-assign]
    for _ in range(2):
        node.append()
        node.step()
    assert seen == [node.log.last_index - 1, node.log.last_index]
