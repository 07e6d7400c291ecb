"""Changes of topics and groups by operators: what they change, and what they must not."""

from __future__ import annotations

import json

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dledger.net import Peer
from dledger.remoting.bodies import (
    CreateTopicListBody,
    SubscriptionGroupConfig,
    TopicConfig,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from mqbroker.limits import CONFIGS_PER_REQUEST_MAX
from mqbroker.refusal import Refused
from mqbroker.requests.admin.changes import named_only, out_of_reach
from mqbroker.testing import MemoryBroker
from mqbroker.testing.requests import (
    TOPIC,
    ask,
    make_topic,
    produce_request,
    topic_request,
)

TOPICS = st.builds(TopicConfig, st.just(TOPIC))
GROUPS = st.builds(SubscriptionGroupConfig, st.just("G"))


@given(known=TOPICS, given_=TOPICS, data=st.data())
def test_a_topic_s_setting_that_is_not_named_stays(
    known: TopicConfig, given_: TopicConfig, data: st.DataObject
) -> None:
    """A topic's settings that a change does not name stay, in any combination."""
    _check_named(known, given_, data)


@given(known=GROUPS, given_=GROUPS, data=st.data())
def test_a_group_s_setting_that_is_not_named_stays(
    known: SubscriptionGroupConfig, given_: SubscriptionGroupConfig, data: st.DataObject
) -> None:
    """Settings of a group that a change does not name stay, like those of a topic."""
    _check_named(known, given_, data)


def _check_named(known: TopicConfig, given_: TopicConfig, data: st.DataObject) -> None:  # type: ignore[misc]
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(known)}
    del fields["attributes"]
    named = data.draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
    changed = named_only(known, given_, ",".join(named))
    for wire, name in fields.items():
        expected = given_ if wire in named else known
        assert getattr(changed, name) == getattr(expected, name)
    assert changed.attributes == given_.attributes
    assert named_only(known, given_, None) == named_only(None, given_, ",".join(named)) == given_
    with pytest.raises(Refused, match="not a setting"):
        named_only(known, given_, "colour")


@given(
    before=st.integers(1, 6),
    ends=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=6, max_size=6),
    read=st.integers(1, 6),
    write=st.integers(1, 6),
)
def test_a_change_that_cuts_messages_off_names_them(
    before: int, ends: list[tuple[int, int]], read: int, write: int
) -> None:
    """A change that removes queues is refused with the number of messages it would hide."""
    known, config = TopicConfig(TOPIC, before, before), TopicConfig(TOPIC, read, write)
    spans = [(begin, begin + count) for begin, count in ends]
    lost = sum(count for _, count in ends[read:before])
    said = out_of_reach(known, config, spans.__getitem__)
    if lost:
        assert (said or "").startswith(f"{lost} messages in queue")
    elif write > read:
        assert (said or "").startswith("messages sent to queue")
    else:
        assert said is None
    assert out_of_reach(config, config, spans.__getitem__) is None


async def config_of(peer: Peer) -> TopicConfig:
    return decode_body(
        TopicConfig, (await ask(peer, RequestCode.GET_TOPIC_CONFIG, topic=TOPIC)).payload
    )


def as_list(queues: int) -> Command:
    """UPDATE_AND_CREATE_TOPIC_LIST, as 5.x has it."""
    body = encode_body(CreateTopicListBody([TopicConfig(TOPIC, queues, queues)]))
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)


@pytest.mark.parametrize(
    ("code", "field", "name"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, "topicConfigList", "topicName"),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "groupConfigList", "groupName"),
    ],
)
async def test_a_list_longer_than_one_turn_allows_is_refused(
    broker: MemoryBroker, peer: Peer, code: int, field: str, name: str
) -> None:
    """The refusal names the field and both numbers; a list with one row less is taken."""
    config = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    rows = [config | {name: f"N{number}"} for number in range(CONFIGS_PER_REQUEST_MAX + 1)]

    async def ask_for(count: int) -> Command:
        body = json.dumps({field: rows[:count]}).encode()
        return await peer.request(Command(code, {}, body), 30)

    refused = await ask_for(len(rows))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert f"{field} has 8193 rows; a request may have 8192" in (refused.remark or "")
    assert broker.machine.topics.get("N0") is None
    assert broker.machine.groups.get("N0") is None
    assert (await ask_for(len(rows) - 1)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("listed", [False, True])
async def test_stock_tools_cut_no_messages_off(
    broker: MemoryBroker, peer: Peer, listed: bool
) -> None:
    """Stock tools send 8 queues if their user names none; the refusal says which number to name."""
    await make_topic(peer, queues=16)
    sent = produce_request("a", runs=[(0, 1), (9, 2), (15, 1)])
    assert (await peer.request(sent, 5)).code == ResponseCode.SUCCESS
    for queues in (1, 8, 15):
        cut = as_list(queues) if listed else topic_request(queues=queues)
        answer = await peer.request(cut, 5)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"has 16 read queues and would have {queues}" in (answer.remark or "")
    assert (await config_of(peer)).read_queue_nums == 16
    forced = topic_request(queues=8)
    forced.ext["force"] = True
    done = await peer.request(forced, 5)
    assert done.code == ResponseCode.SUCCESS
    assert "3 messages in queues 9 to 15" in (done.remark or "")
    assert broker.machine.queues.end(TOPIC, 9) == 2


async def test_a_send_and_a_cut_of_its_queue_are_not_both_done(peer: Peer) -> None:
    """A send to a queue and a change that removes it exclude each other, even unapplied."""
    for number in range(20):
        topic = f"T{number}"
        await make_topic(peer, topic, queues=4)
        done: list[bool] = []

        async def request(command: Command, done: list[bool] = done) -> None:
            done.append((await peer.request(command, 5)).code == ResponseCode.SUCCESS)

        send = produce_request("a", topic=topic, runs=[(3, 1)])
        requests = [send, topic_request(topic, 2)]
        async with trio.open_nursery() as nursery:
            for command in requests[:: 1 if number % 2 else -1]:
                nursery.start_soon(request, command)
        assert sorted(done) == [False, True]
