"""A replica that can't read its own files for a while: its own work waits."""

from __future__ import annotations

import pytest
from replicas import Group

from dledger.errors import StorageError
from dledger.testing.logs import capture_logs
from mqbroker.testing.requests import TOPIC


def unreadable(*_: object) -> object:
    raise StorageError("planted")


@pytest.mark.parametrize(
    ("part", "event"),
    [
        ("mqbroker.leader.waiting.deliveries.Deliveries.deliver", "delayed messages wait"),
        (
            "mqbroker.requests.sending.transactions.TransactionHandler.check",
            "transactions not checked",
        ),
    ],
)
async def test_what_a_leader_does_by_itself_waits_until_it_can_read(
    found: Group, monkeypatch: pytest.MonkeyPatch, part: str, event: str
) -> None:
    """A leader that can't read makes queues again, or repairs entries, once it can.

    Meanwhile it serves, says what waits once in a while, and no process ends; afterwards delayed
    messages come.
    """
    await found.begin()
    begun = found.machine.queues.end(TOPIC, 0)
    with monkeypatch.context() as worn, capture_logs() as logs:
        worn.setattr(part, unreadable)
        for _ in range(300):
            await found.pass_time(0.1)
        await found.serves()
    assert 2 < sum(log["event"] == event for log in logs) <= 31
    for _ in range(30):
        await found.pass_time(1.0)
    await found.serves()
    found.agree()
    served = delayed = 2
    assert found.machine.queues.end(TOPIC, 0) == begun + served + delayed
