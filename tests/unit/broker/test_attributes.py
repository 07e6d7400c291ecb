"""Topic attributes: how they are altered, who shows them, and what they do to sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import BadInput
from dledger.net import Peer
from dledger.remoting.attributes import parse_alteration
from dledger.remoting.bodies import (
    CreateTopicListBody,
    TopicConfig,
    TopicConfigWrapper,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.config import BrokerConfig
from mqbroker.state.attributes import alter, message_type
from mqbroker.testing.memory import served
from mqbroker.testing.requests import TOPIC, ask, produce_request, send_request, topic_request

DELAYED = "DELAY\x011\x02"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"


@pytest.mark.parametrize(
    ("current", "altered", "outcome"),
    [
        (None, "", {}),
        (None, "+message.type=DELAY", {"message.type": "DELAY"}),
        (
            None,
            "+queue.type=BatchCQ,+reserve.time=-1",
            {"queue.type": "BatchCQ", "reserve.time": "-1"},
        ),
        ({"message.type": "DELAY"}, "", {"message.type": "DELAY"}),
        ({"message.type": "DELAY"}, "+message.type=FIFO", {"message.type": "FIFO"}),
        ({"message.type": "DELAY"}, "-message.type", {}),
        ({}, "+message.type=MIXED", {"message.type": "MIXED"}),
        (None, "+cleanup.policy=DELETE", {"cleanup.policy": "DELETE"}),
    ],
)
def test_what_is_not_named_stays(
    current: dict[str, str] | None, altered: str, outcome: dict[str, str]
) -> None:
    """A plus sets an attribute, a minus removes one, and attributes that are not named stay."""
    assert alter(current, parse_alteration(altered)) == outcome


@pytest.mark.parametrize(
    ("current", "altered", "said"),
    [
        (None, "message.type=DELAY", "not of the form"),
        (None, "+message.type", "not of the form"),
        (None, "-message.type=DELAY", "not of the form"),
        (None, "+message.type=DELAY,+message.type=FIFO", "comes twice"),
        ({"message.type": "DELAY"}, "+message.type=DELAY,-message.type", "comes twice"),
        (None, "+=x", "is not known"),
        (None, "+colour=red", "'colour' is not known; there are message.type"),
        (None, "+message.type=delay", "one of UNSPECIFIED, NORMAL"),
        (None, "-message.type", "is not set"),
        ({}, "-message.type", "is not set"),
        ({}, "+queue.type=SimpleCQ", "can't be changed"),
        ({"queue.type": "SimpleCQ"}, "-queue.type", "can't be changed"),
        (None, "+cleanup.policy=COMPACTION", "not supported here: only DELETE"),
        (None, "+reserve.time=3600000", "not supported here: only -1"),
    ],
)
def test_what_can_not_be_is_refused_by_name(
    current: dict[str, str] | None, altered: str, said: str
) -> None:
    """An attribute that is unknown, or has a wrong value, is refused by its name."""
    with pytest.raises(BadInput, match=said):
        alter(current, parse_alteration(altered))


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "NORMAL"),
        ({"__SHARDINGKEY": "o-1"}, "FIFO"),
        ({"DELAY": "3", "__SHARDINGKEY": "o-1"}, "DELAY"),
        ({"TIMER_DELAY_MS": "3"}, "DELAY"),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "TRANSACTION"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
    ],
)
def test_a_message_has_one_type(properties: dict[str, str], kind: str) -> None:
    """A message's properties decide its type, in the order in which the reference looks at them."""
    assert message_type(properties) == kind


async def attributes(peer: Peer) -> dict[str, str]:
    one = await ask(peer, RequestCode.GET_TOPIC_CONFIG, topic=TOPIC)
    every = await ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = decode_body(TopicConfigWrapper, every.payload).topic_config_table
    shown = decode_body(TopicConfig, one.payload).attributes
    assert shown == table[TOPIC].attributes
    return shown


async def put(peer: Peer, altered: str | None) -> ResponseCode:
    request = topic_request()
    if altered is not None:
        request.ext["attributes"] = altered
    return ResponseCode((await peer.request(request, 5)).code)


async def test_tools_set_and_see_them(peer: Peer) -> None:
    """Both request codes change attributes; a change of queues that names none keeps all."""
    assert await put(peer, "+message.type=DELAY") == ResponseCode.SUCCESS
    assert await attributes(peer) == {"message.type": "DELAY"}
    assert await put(peer, None) == ResponseCode.SUCCESS
    assert await attributes(peer) == {"message.type": "DELAY"}
    assert await put(peer, "+colour=red") == ResponseCode.SYSTEM_ERROR
    assert await attributes(peer) == {"message.type": "DELAY"}
    body = encode_body(
        CreateTopicListBody([TopicConfig(TOPIC, 4, 4, attributes={"-message.type": ""})])
    )
    await ask(peer, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
    assert await attributes(peer) == {}


@pytest.mark.parametrize("checked", [False, True])
async def test_a_topic_s_type_is_held_if_the_operator_wants_it(
    tmp_path: Path, checked: bool
) -> None:
    """A broker that checks types refuses messages of another type; by default none does."""
    config = BrokerConfig(enable_topic_message_type_check=checked)
    wrong = ResponseCode.MESSAGE_ILLEGAL if checked else ResponseCode.SUCCESS
    async with served(tmp_path, config) as (_, peer):

        async def sent(properties: str) -> int:
            return (await peer.request(send_request(i=properties), 5)).code

        await put(peer, "+message.type=DELAY")
        assert await sent(DELAYED) == ResponseCode.SUCCESS
        assert await sent("") == wrong
        assert await sent(HALF) == wrong
        assert await sent("ORIGIN_MESSAGE_ID\x01abc\x02") == ResponseCode.SUCCESS
        assert (await peer.request(produce_request("a", runs=[(0, 1)]), 5)).code == wrong
        await put(peer, "+message.type=NORMAL")
        assert await sent("") == ResponseCode.SUCCESS
        assert await sent(DELAYED) == wrong
        assert (await peer.request(produce_request("b", runs=[(0, 1)]), 5)).code == 0
        for anything in ("+message.type=MIXED", "-message.type"):
            await put(peer, anything)
            assert {await sent(""), await sent(DELAYED), await sent(HALF)} == {0}
