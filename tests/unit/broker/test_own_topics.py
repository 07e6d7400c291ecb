"""The broker's own topics hold messages that wait; only tools may read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.names import TOOLS_GROUP, UNREADABLE
from mqbroker.testing import MemoryBroker
from mqbroker.testing.requests import GROUP, TOPIC, pull_request
from tests.unit.broker.test_popping import pop_request


def _with_code(code: RequestCode) -> Callable[..., Command]:
    """A pop's header under another code, of which peeks and notifications have a part."""

    def request(**changed: str) -> Command:
        command = pop_request(**changed)
        return Command(code, command.ext, encoding=command.encoding)

    return request


READS: dict[str, Callable[..., Command]] = {
    "pull": pull_request,
    "pop": pop_request,
    **{
        code.name: _with_code(code)
        for code in (RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO)
    },
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("topic", sorted(UNREADABLE))
async def test_no_group_reads_the_brokers_own_topics(
    broker: MemoryBroker, peer: Peer, topic: str, read: str
) -> None:
    """A group can't read the broker's own topics: messages would come before their time."""
    answer = await peer.request(READS[read](topic=topic, queueId="0"), 5)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "belongs to the broker" in (answer.remark or "")
    assert broker.machine.groups.get(GROUP) is None


async def test_tools_see_what_waits(peer: Peer) -> None:
    """`mqadmin printMsg -t rmq_sys_wheel_timer` works, as in RocketMQ."""
    pulled = pull_request(topic="rmq_sys_wheel_timer", consumerGroup=TOOLS_GROUP)
    pulled.ext["suspendTimeoutMillis"] = 0
    assert (await peer.request(pulled, 5)).code == ResponseCode.PULL_NOT_FOUND
    other = await peer.request(pull_request(topic=TOPIC), 5)
    assert other.code == ResponseCode.TOPIC_NOT_EXIST
