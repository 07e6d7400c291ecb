"""The blocking clients have all that the asynchronous ones have, under the same names."""

from __future__ import annotations

import inspect

import pytest
import trio

import mqclient
from dledger.errors import ConnectFailed
from mqclient import BadInput, blocking
from mqclient.admin.session import Part

#: Methods that need an event loop: `send_soon` gives a Future instead, and never waits long.
LEFT_OUT = {
    *("send_nowait", "check_open", "sending_back", "next_after", "give_back"),
    "stay_behind",
}


def public(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")} - LEFT_OUT


def parts(admin: object, kind: type) -> list[str]:
    return [name for name, part in vars(admin).items() if isinstance(part, kind)]


PARTS = parts(mqclient.Admin("h:1"), Part)


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_each_face_has_the_same_calls_with_the_same_parameters(name: str) -> None:
    """Both faces have the same calls, so that a user of one need not learn the other."""
    there, here = getattr(mqclient, name), getattr(blocking, name)
    compare(there, here, "__init__")


@pytest.mark.parametrize("name", PARTS)
def test_each_part_of_the_administration_has_the_same_calls(name: str) -> None:
    """A part of the administration has the same calls and parameters in both faces."""
    here = getattr(blocking.Admin("h:1"), name)
    compare(type(getattr(mqclient.Admin("h:1"), name)), type(here))
    assert parts(blocking.Admin("h:1"), blocking.AdminPart) == PARTS


def compare(there: type, here: type, *others: str) -> None:
    assert public(there) <= public(here)
    for call in (*others, *sorted(public(there))):
        ours = getattr(here, call)
        if callable(ours):
            wanted = list(inspect.signature(getattr(there, call)).parameters)
            assert list(inspect.signature(ours).parameters) == wanted, call


async def test_a_blocking_client_is_refused_in_a_task_of_trio() -> None:
    """A task that waited for a thread would stop all others: trio refuses it, so it never ended."""
    clients = blocking.Producer("h:1"), blocking.Consumer("h:1", "G", {"T": "*"})
    for client in (*clients, blocking.Admin("h:1"), blocking.BulkWriter("h:1")):
        with pytest.raises(BadInput, match=r"`mqclient`, or call it in a thread, by `trio\.to_"):
            client.open()


async def test_a_client_of_a_thread_refuses_a_task_and_stays_open() -> None:
    """Calls and the end are refused in a task, and the client goes on where it was opened."""
    admin = await trio.to_thread.run_sync(blocking.Admin("127.0.0.1:1").open)
    for refused in (admin.topics.list, admin.close):
        with pytest.raises(BadInput, match="task of trio"):
            refused()
    with pytest.raises(ConnectFailed, match="no name server answers"):
        await trio.to_thread.run_sync(admin.topics.list)
    await trio.to_thread.run_sync(admin.close)
