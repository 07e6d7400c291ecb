"""Packets of strangers that once ended a group, or hurt other clients."""

from __future__ import annotations

import random

import pytest
from replicas import Group

from dledger.errors import RecordError
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import ProduceHeader, encode_header
from dledger.remoting.record import encode_record
from dledger.remoting.record.lone import parse_records
from mqbroker.testing.requests import (
    BORN_HOST,
    TOPIC,
    produce_request,
    pull_request,
    send_request,
    topic_request,
)

BEYOND = [2**31, 2**31 - 1, -(2**31), -(2**31) - 1, 2**40, 2**63 - 1, 2**63, 2**64, 2**70, -(2**70)]


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("field", "defghjl")
async def test_a_send_with_a_number_that_no_record_can_hold_is_refused(
    found: Group, field: str, value: int
) -> None:
    """A number that no record holds is refused, and the queue's offsets go on without it."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    before = found.machine.applied_index
    answer = await stranger.ask(send_request(b"hostile", **{field: str(value)}))
    if field != "g" and not -(2**31) <= value < 2**31:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert repr(field) in (answer.remark or "")
        assert found.machine.applied_index == before


@pytest.mark.parametrize("bits", [0x10, 0x20, 0x30, 0x7FFFFFF3, -1 & ~0xC])
async def test_flags_that_claim_other_hosts_than_the_record_has_count_for_nothing(
    found: Group, bits: int
) -> None:
    """The broker writes the hosts, and its own flags say of which kind they are."""
    await found.connect().do(send_request(b"hostile", f=str(bits)))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("properties", [b"TAGS\x01\xff\xfe\x02", b"K\xff\x01v\x02", b"\xc3"])
async def test_a_batch_with_properties_that_are_no_text_is_refused(
    found: Group, properties: bytes, number: int
) -> None:
    """A batch with wrong properties in any record is refused, and makes no topic."""
    pieces = [b"UNIQ_KEY\x01k\x02TAGS\x01A\x02"] * 3
    pieces[number] = properties
    body = b"".join(
        encode_record(
            topic=b"Fresh",
            queue_id=0,
            body=b"x",
            properties=piece,
            born_timestamp_ms=1,
            born_host=BORN_HOST,
        )
        for piece in pieces
    )
    header = ProduceHeader(topic="Fresh", producer_group="P", runs=[(0, 3)])
    request = Command(RequestCode.PRODUCE, encode_header(header), body)
    answer = await found.connect().ask(request)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"record {number}" in (answer.remark or "")
    assert found.machine.topics.get("Fresh") is None


async def test_a_message_that_came_back_most_often_comes_back_once_more(found: Group) -> None:
    """The count of its tries stays where it is: a record can't hold more."""
    stranger = found.connect()
    await stranger.ask(send_request(b"again", j=str(2**31 - 1)))
    unit = next(iter(found.machine.queues.get(TOPIC, 1).read(0, 1)))  # type: ignore[union-attr]
    await stranger.ask(pull_request(1))  # makes the group
    header: dict[str, ExtValue] = {
        "group": "C",
        "offset": str(int(unit["position"])),
        "delayLevel": "0",
        "maxReconsumeTimes": str(2**31 - 1),
    }
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    await stranger.do(Command(code, header, encoding=HeaderEncoding.JSON))


@pytest.mark.parametrize("perm", [8, -1, 2**31, 2**70])
async def test_a_topic_whose_making_failed_is_not_there_for_sends_either(
    found: Group, perm: int
) -> None:
    """A send to it makes it anew, with what a first send's topic has."""
    stranger = found.connect()
    request = topic_request("Odd")
    request.ext = dict(request.ext) | {"perm": str(perm)}
    answer = await stranger.ask(request)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "perm" in (answer.remark or "")
    await stranger.do(send_request(b"hello", b="Odd"))
    assert found.machine.topics.get("Odd") is not None


async def test_a_unique_key_is_answered_after_a_send_with_it_was_refused(found: Group) -> None:
    """A request about a refused send's unique key is answered: the refusal leaves no trace."""
    stranger = found.connect()
    key = "UNIQ_KEY\x01k1\x02"
    await stranger.ask(send_request(b"hello", g=str(2**63), i=key))
    await stranger.ask(send_request(b"hello", j=str(2**31), i=key))
    await stranger.do(send_request(b"hello", i=key))


@pytest.mark.parametrize(
    "changed",
    [{"d": "1", "e": "999"}, {"i": "DELAY\x01x\x02"}, {"i": "k\x01" + "v" * 32_768 + "\x02"}],
)
async def test_a_refused_send_makes_no_topic(found: Group, changed: dict[str, ExtValue]) -> None:
    """The topic is made by a send that is stored."""
    answer = await found.connect().ask(send_request(b"hello", **(changed | {"b": "Fresh"})))
    assert answer.code != ResponseCode.SUCCESS
    assert found.machine.topics.get("Fresh") is None


@pytest.mark.parametrize("value", [2**63, 2**64, 2**70, -1, -(2**70)])
@pytest.mark.parametrize("field", ["commitOffset", "queueId"])
async def test_a_commit_of_an_offset_that_is_none_ends_nothing(
    found: Group, field: str, value: int
) -> None:
    """A wrong one-way commit is dropped, and other commits are written all the same."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.ask(produce_request("in", runs=((0, 9),)))
    ext: dict[str, ExtValue] = {
        "consumerGroup": "C",
        "topic": TOPIC,
        "queueId": "0",
        "commitOffset": "0",
    }
    hostile = Command(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        ext | {field: str(value)},
        flag=FLAG_ONEWAY,
        encoding=HeaderEncoding.JSON,
    )
    await stranger.tell(hostile)
    honest = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "7"})
    honest.flag |= FLAG_ONEWAY
    await found.connect().tell(honest)
    await found.pass_time(0.1)
    assert found.machine.offsets.get("C", TOPIC, 0) == 7


@pytest.mark.parametrize("value", [2**63, 2**64, 2**70])
async def test_a_pull_that_commits_what_is_no_offset_is_refused(found: Group, value: int) -> None:
    """A pull that commits a wrong offset is refused, and other commits go on."""
    stranger = found.connect()
    await stranger.ask(send_request(b"hello"))
    answer = await stranger.ask(pull_request(1, 0, 4 | 1, commitOffset=str(value)))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "commitOffset" in (answer.remark or "")
    await found.pass_time(0.1)


async def test_a_group_that_a_refused_pull_names_is_not_made(found: Group) -> None:
    """A pull of a topic that is not there leaves nothing behind."""
    answer = await found.connect().ask(pull_request(0, topic="Nowhere", consumerGroup="New"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert found.machine.groups.get("New") is None


def test_properties_are_taken_only_if_they_are_text() -> None:
    """Properties must be UTF-8, in a batch as one by one, whatever their widths are."""
    seed = 1
    print(f"seed {seed}")
    rng = random.Random(seed)
    kinds = [b"", b"a\x01b\x02", "\u00e9\x01b\x02".encode(), b"\xff", b"x" * 600, b"k\x01v\x02" * 9]
    for _ in range(300):
        chosen = [rng.choice(kinds) for _ in range(rng.randrange(1, 5))]
        batch = b"".join(
            encode_record(
                topic=b"T",
                queue_id=0,
                body=rng.randbytes(rng.randrange(9)),
                properties=properties,
                born_timestamp_ms=1,
                born_host=BORN_HOST,
            )
            for properties in chosen
        )
        broken = [number for number, properties in enumerate(chosen) if properties == b"\xff"]
        if not broken:
            parse_records(batch, b"T", [(0, len(chosen))])
            continue
        with pytest.raises(RecordError, match=f"record {broken[0]}: its properties"):
            parse_records(batch, b"T", [(0, len(chosen))])
