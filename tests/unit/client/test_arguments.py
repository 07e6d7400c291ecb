"""Numbers that make no sense are refused at the call, with the parameter's name."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trio.testing import MockClock

from dledger.errors import BadInput
from mqclient import Admin, Consumer, Message, PopConsumer, Producer
from mqlocal import local_cluster

NO_SECONDS: list[Any] = [-1, -0.001, math.nan, -math.inf, "3", None, b"3", [3]]
NO_COUNT: list[Any] = [0, -1, 1.5, math.nan, math.inf, "3", None, -(2**70)]

MADE_WITH = [
    *((Producer, "timeout_s", value) for value in (*NO_SECONDS, 0)),
    *((Producer, "linger_s", value) for value in (*NO_SECONDS, 3.0, math.inf)),
    *((Producer, "batch_bytes_max", value) for value in NO_COUNT),
    *((Producer, "pending_max", value) for value in NO_COUNT),
    *((Producer, "pending_bytes_max", value) for value in NO_COUNT),
    *((Consumer, "auto_commit_interval_s", value) for value in (*NO_SECONDS, 0)),
    *((Consumer, "revoke_timeout_s", value) for value in NO_SECONDS),
    *((Consumer, "prefetch_messages", value) for value in NO_COUNT),
    *((Consumer, "prefetch_bytes", value) for value in NO_COUNT),
    *((PopConsumer, "invisible_s", value) for value in NO_SECONDS),
    *((Admin, "timeout_s", value) for value in (*NO_SECONDS, 0)),
]


@pytest.mark.parametrize(("client", "name", "value"), MADE_WITH)
def test_a_client_is_not_made_with(client: Callable[..., object], name: str, value: object) -> None:
    """A constructor refuses a wrong number, before any connection."""
    wanted = {} if client in (Producer, Admin) else {"group": "C", "subscriptions": {"T": "*"}}
    with pytest.raises(BadInput, match=name):
        client(**{name: value}, **wanted)


async def test_a_call_is_refused(autojump_clock: MockClock) -> None:
    """A call refuses a wrong number before anything is sent or taken."""
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.consumer("C", {"T": "*"}) as consumer,
        PopConsumer(cluster.namesrv_addr, "D", {"T": "*"}) as pops,
    ):
        message = Message("T", b"x")
        await producer.send(message)
        by_time: list[Callable[[Any], Awaitable[object]]] = [
            lambda value: producer.send(message, timeout_s=value),
            lambda value: producer.send_soon(message, timeout_s=value),
            lambda value: producer.send_batch([message], timeout_s=value),
            lambda value: producer.send_many("T", [b"x"], timeout_s=value),
            lambda value: producer.send_large(message, timeout_s=value),
            lambda value: producer.request(message, timeout_s=value),
            lambda value: consumer.poll(timeout_s=value),
            lambda value: consumer.poll_many(timeout_s=value),
            lambda value: pops.poll(timeout_s=value),
        ]
        for call in by_time:
            for value in NO_SECONDS:
                if value is not None:  # most have a default
                    with pytest.raises(BadInput, match="timeout_s="):
                        await call(value)
        by_count: list[Callable[[Any], Awaitable[object]]] = [
            consumer.poll,
            consumer.poll_many,
            pops.poll,
        ]
        for call in by_count:
            for value in NO_COUNT:
                with pytest.raises(BadInput, match="max_messages="):
                    await call(value)
        for value in (-1, 2**31, 1.5, True):
            with pytest.raises(BadInput, match="max_reconsume_times="):
                await pops.run(print, max_reconsume_times=value)  # type: ignore[arg-type]
        assert producer.pending == 0
        assert [each.body for each in await consumer.poll(timeout_s=math.inf)] == [b"x"]
