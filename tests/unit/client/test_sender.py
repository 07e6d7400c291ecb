"""Sends to a group whose members answer by script: redirects, silence, busy servers, one-way.

The members are real servers on real sockets with the test's answers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

import pytest
import trio
from answers import group_info

from dledger.errors import ConnectionLost, OutcomeUnknown
from dledger.net import Connection, Handler, serve_remoting
from dledger.net.peer import OnResponse, Peer
from dledger.remoting.bodies import BrokerData, TopicRouteData
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GroupInfoResponseHeader,
    ProduceHeader,
    ProduceResponseHeader,
    decode_header,
    encode_header,
)
from mqbroker.leader.role import Role
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.peers import PeerPool
from mqclient.connection.routing import RouteTable
from mqclient.errors import SendFailed, SendUnknown
from mqclient.producing.batching import Accumulator
from mqclient.producing.pending import PendingSlot
from mqclient.producing.sending.sender import GroupSender

Script = Callable[["Member", Command], Command | None]


def acknowledge(member: Member, request: Command) -> Command:
    """Acknowledge a request: every run begins at offset 7."""
    runs = decode_header(ProduceHeader, request).runs
    header = ProduceResponseHeader(
        position=100, offsets=[(q, 7) for q, _ in runs], store_timestamp=1, duplicate=False
    )
    return request.reply(0, encode_header(header))


def stay_silent(member: Member, request: Command) -> None:
    """Neither store the request nor refuse it."""


class Member(Handler):
    """A member of a broker group with scripted answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.role = "follower"
        self.term = 1
        self.script: Script = acknowledge
        self.requests: list[Command] = []
        self.bodies: list[bytes] = []
        self.connection: Connection | None = None

    def __call__(self, request: Command, connection: Connection) -> Command | None:
        if request.code == RequestCode.GROUP_INFO:
            return request.reply(0, encode_header(self.info()))
        self.connection = connection
        self.requests.append(request)
        self.bodies.append(bytes(request.payload))
        return self.script(self, request)

    def info(self) -> GroupInfoResponseHeader:
        role = "leader" if self.role == "leader" else "follower"
        return group_info(broker_name="b", node_id=self.name, role=role, term=self.term)


class Group:
    """Two members, the first leading in term 1, and a sender to them."""

    def __init__(self, sender: GroupSender, a: Member, b: Member) -> None:
        self.sender, self.a, self.b = sender, a, b
        self.count = 0

    def send(self, timeout_s: float = 3.0, queue_id: int = 0) -> PendingSlot:
        self.count += 1
        now_s = time.monotonic()
        pending = PendingSlot(f"key-{self.count}", now_s + timeout_s)
        self.sender.accumulator.add(pending, "T", queue_id, b"record-%d" % self.count, now_s)
        self.sender.pump()
        return pending


@pytest.fixture
async def g() -> AsyncIterator[Group]:
    async with trio.open_nursery() as nursery, PeerPool() as pool:
        members = [Member("n0"), Member("n1")]
        for member in members:
            port = await nursery.start(serve_remoting, member, "127.0.0.1", 0)
            member.address = f"127.0.0.1:{port}"
        members[0].role = "leader"
        routes = RouteTable()
        told = dict(enumerate(member.address for member in members))
        routes.learn_members(TopicRouteData([BrokerData("c", "b", told)]))
        routes.learn_leader("b", members[0].address, term=1)
        sender = GroupSender(Accumulator("b"), LeaderFinder(pool, routes, ()), "PG", lambda: None)
        nursery.start_soon(sender.keep_time)
        nursery.start_soon(sender.keep_leader)
        with trio.fail_after(30):
            yield Group(sender, *members)
        nursery.cancel_scope.cancel()


async def test_an_acknowledged_message_knows_its_place(g: Group) -> None:
    """Offset and position follow from the batch's acknowledgement."""
    result = await g.send().wait()
    assert (7, 100, g.a.address) == (result.queue_offset, result.position, result.leader)


async def test_an_acknowledgement_of_another_queue_is_none(g: Group) -> None:
    """An acknowledgement of another queue is an unknown outcome, with the answer's words."""

    def elsewhere(_: Member, request: Command) -> Command:
        header = ProduceResponseHeader(
            position=100, offsets=[(3, 7)], store_timestamp=1, duplicate=False
        )
        return request.reply(0, encode_header(header))

    g.a.script = elsewhere
    with pytest.raises(SendUnknown, match=r"offsets of the queues \[3\] for messages of \[0\]"):
        await g.send().wait()


async def test_a_redirect_is_followed_at_once(g: Group) -> None:
    """A member that names the leader costs one more round trip, and the bytes are the same."""
    g.a.script = lambda m, request: request.reply(14, {"leaderAddr": g.b.address})
    result = await g.send().wait()
    assert result.leader == g.b.address
    assert g.a.bodies == g.b.bodies


async def test_a_lost_connection_is_followed_by_a_search(g: Group) -> None:
    """A broken connection is followed by a search, and the new leader gets the batch."""

    def die(member: Member, request: Command) -> None:
        assert member.connection is not None
        member.role, g.b.role, g.b.term = "follower", "leader", 2
        member.connection.close("killed")

    g.a.script = die
    result = await g.send().wait()
    assert result.leader == g.b.address
    assert g.a.bodies == g.b.bodies


async def test_a_connection_that_breaks_within_the_call_costs_one_try(
    g: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes before the call returns: the batch is tried again, and only once."""
    await g.send().wait()
    send, broken = Peer.request_nowait, []

    def break_once(self: Peer, command: Command, on_response: OnResponse) -> int:
        if broken:
            return send(self, command, on_response)
        broken.append(command)
        on_response(ConnectionLost("it broke"))
        return 0

    monkeypatch.setattr(Peer, "request_nowait", break_once)
    pending = g.send()
    batch = pending.batch
    assert batch.delivery.doubtful
    assert batch not in g.sender._on_wire
    await pending.wait()
    assert [bytes(body) for body in g.a.bodies] == [b"record-1", b"record-2"]


async def test_a_silent_leader_is_left_when_another_leads(g: Group) -> None:
    """Unanswered for a while and somebody else leads: the same bytes go there, once."""
    g.a.script = stay_silent
    g.b.role, g.b.term = "leader", 2
    result = await g.send().wait()
    assert result.leader == g.b.address
    assert g.a.bodies == g.b.bodies == [b"record-1"]


async def test_a_silent_leader_that_still_leads_is_waited_for(g: Group) -> None:
    """Slow is not dead: nothing is sent twice while the group says that the leader leads."""
    g.a.script = stay_silent
    pending = g.send()
    await trio.sleep(1.0)
    assert len(g.a.requests) == 1
    assert not pending.settled
    assert g.a.connection is not None
    g.a.connection.send(acknowledge(g.a, g.a.requests[0]))
    assert (await pending.wait()).queue_offset == 7


async def test_a_busy_server_is_tried_again(g: Group) -> None:
    """A refusal for a moment is retried at the same server, with the same bytes."""

    def busy_once(member: Member, request: Command) -> Command:
        member.script = acknowledge
        return request.reply(14, {"retryAfterMillis": "5"})

    g.a.script = busy_once
    assert (await g.send().wait()).leader == g.a.address
    assert g.a.bodies == [b"record-1", b"record-1"]


async def test_a_refused_batch_keeps_its_queue_waiting(g: Group) -> None:
    """Later messages of a queue wait while its batch is retried; other queues go on."""
    order: list[bytes] = []

    def refuse_the_first_twice(member: Member, request: Command) -> Command:
        body = bytes(request.payload)
        if body == b"record-1" and member.bodies.count(body) < 3:
            return request.reply(2, remark="busy")
        order.append(body)
        return acknowledge(member, request)

    g.a.script = refuse_the_first_twice
    pending = [g.send(queue_id=0), g.send(queue_id=0), g.send(queue_id=1)]
    for each in pending:
        await each.wait()
    assert order == [b"record-3", b"record-1", b"record-2"]


async def test_a_refusal_for_good_is_definite(g: Group) -> None:
    """A message that the broker declines fails at once, and certainly is not stored."""
    g.a.script = lambda m, request: request.reply(13, remark="too long")
    with pytest.raises(SendFailed, match="too long"):
        await g.send().wait()


async def test_an_unknown_outcome_stays_unknown(g: Group) -> None:
    """A failure stays indefinite once a try ended without an answer."""
    g.a.script = stay_silent
    with pytest.raises(SendUnknown) as failure:
        await g.send(timeout_s=0.2).wait()
    assert not failure.value.definite
    g.a.script = acknowledge
    assert (await g.send().wait()).queue_offset == 7


async def test_what_a_deposed_leader_leaves_behind_is_unknown(g: Group) -> None:
    """A deposed leader's append has an unknown outcome, in a real broker's words."""
    role = Role("n0", {})

    def resign(member: Member, request: Command) -> Command:
        member.role = "follower"
        refusal = role.refusal_of(OutcomeUnknown("leadership was lost"))
        return request.reply(refusal.code, refusal.ext, remark=str(refusal))

    g.a.script = resign
    with pytest.raises(SendUnknown):
        await g.send(timeout_s=0.2).wait()


async def test_callbacks_run_when_the_outcome_stands(g: Group) -> None:
    """A callback gets the settled send; one that is added late is called at once."""
    seen: list[int] = []
    pending = g.send()
    pending.add_callback(lambda each: seen.append(each.result().queue_offset))
    assert seen == []
    await pending.wait()
    pending.add_callback(lambda each: seen.append(each.result().position))
    assert seen == [7, 100]
