"""Users and their rights, as tools administrate them: over the log, in snapshots, wrapped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dledger.limits import ACL_ENTRIES_PER_USER_MAX
from dledger.net import Peer
from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.slices import drained
from dledger.trust.users import Keys
from mqbroker.config import BrokerConfig
from mqbroker.state.machine import Machine
from mqbroker.testing import MemoryBroker, served
from mqbroker.testing.leading import save

SECRET = "the word of this cluster"  # noqa: S105
PASSWORD = "s3cret of ann"  # noqa: S105


@asynccontextmanager
async def broker_of_users(
    tmp_path: Path, secret: str = SECRET
) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    """A broker whose cluster has a secret."""
    async with served(tmp_path, BrokerConfig(d_leger_secret=secret)) as (broker, tool):
        yield broker, tool


async def ask(tool: Peer, code: int, content: object = None, /, **ext: ExtValue) -> Command:
    """The answer to a tool's request."""
    body = b"" if content is None else json.dumps(content).encode()
    return await tool.request(Command(code, ext, body), 10)


async def create(tool: Peer, name: str = "ann", **info: ExtValue) -> Command:
    """A user is to be made."""
    return await ask(tool, Code.CREATE_USER, {"password": PASSWORD} | info, username=name)


def entry(resource: str = "Topic:*", **changed: object) -> dict[str, object]:
    """An entry as tools write it."""
    return {"resource": resource, "actions": ["Pub"], "decision": "Allow"} | changed


def acl(*entries: dict[str, object], policy: str = "Custom") -> dict[str, object]:
    """A body of policies for an ACL."""
    return {"policies": [{"policyType": policy, "entries": list(entries)}]}


async def test_a_user_is_made_changed_and_removed(tmp_path: Path) -> None:
    """Making, changing and removing users have RocketMQ's answers, and its refusals."""
    async with broker_of_users(tmp_path) as (broker, tool):
        assert (await create(tool)).code == ResponseCode.SUCCESS
        again = await create(tool, password=PASSWORD[::-1])
        assert (again.code, again.remark) == (ResponseCode.NO_PERMISSION, "The user is existed")
        shown = await ask(tool, Code.GET_USER, username="ann")
        expected = {"username": "ann", "userType": "Normal", "userStatus": "enable"}
        assert json.loads(bytes(shown.payload)) == expected
        changed = await ask(tool, Code.UPDATE_USER, {"userStatus": "disable"}, username="ann")
        assert changed.code == ResponseCode.SUCCESS
        user = broker.machine.users.get("ann")
        assert user is not None
        assert (user.enabled, user.is_super) == (False, False)
        key = Keys(SECRET.encode()).key(user)
        assert key is not None
        missing = await ask(tool, Code.UPDATE_USER, {"userStatus": "enable"}, username="bob")
        assert missing.remark == "The user is not exist"
        for _ in range(2):
            gone = await ask(tool, Code.DELETE_USER, username="ann")
            assert gone.code == ResponseCode.SUCCESS
        nobody = await ask(tool, Code.GET_USER, username="ann")
        assert (nobody.code, bytes(nobody.payload)) == (0, b"")
        nameless = await ask(tool, Code.GET_USER, username="")
        assert nameless.code == ResponseCode.INVALID_PARAMETER


async def test_lists_are_filtered_and_passwords_told_only_when_asked_for(tmp_path: Path) -> None:
    """An empty list has no body."""
    async with broker_of_users(tmp_path) as (_, tool):
        assert bytes((await ask(tool, Code.LIST_USER)).payload) == b""
        for name in ("ann", "anna", "bob"):
            await create(tool, name)
        found = json.loads(bytes((await ask(tool, Code.LIST_USER, filter="ann")).payload))
        assert [user["username"] for user in found] == ["ann", "anna"]
        assert not any("password" in user for user in found)
        shown = await ask(tool, Code.GET_USER, username="ann", showPassword=True)
        assert json.loads(bytes(shown.payload))["password"] == PASSWORD


async def test_entries_are_merged_by_resource_and_removed(tmp_path: Path) -> None:
    """A second entry of a resource replaces the first; policies of both types stay apart."""
    async with broker_of_users(tmp_path) as (broker, tool):
        await create(tool)
        for body in (
            acl(entry("Topic:a"), entry("Group:g", actions=["Sub"])),
            acl(entry("Topic:a", actions=["sub", "Pub"], sourceIps=["10.1.2.3/8", "::1"])),
            acl(entry("Topic:a", decision="deny"), policy="Default"),
        ):
            answer = await ask(tool, Code.CREATE_ACL, body, subject="User:ann")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        user = broker.machine.users.get("ann")
        assert user is not None
        assert [str(each) for each in user.entries] == [
            "Custom: Allow Sub|Pub on Topic:a from 10.0.0.0/8, ::1",
            "Custom: Allow Sub on Group:g",
            "Default: Deny Pub on Topic:a",
        ]
        listed = await ask(tool, Code.LIST_ACL, subjectFilter="ann", resourceFilter="Group:")
        (found,) = json.loads(bytes(listed.payload))
        assert found["subject"] == "User:ann"
        assert [each["resource"] for each in found["policies"][0]["entries"]] == ["Group:g"]
        gone = await ask(tool, Code.DELETE_ACL, subject="User:ann", resource="Topic:a")
        assert gone.code == ResponseCode.SUCCESS
        gone = await ask(tool, Code.DELETE_ACL, subject="User:ann", resource="Topic:b")
        assert gone.remark == "The acl is not exist."
        await ask(tool, Code.DELETE_ACL, subject="User:ann")
        nothing = await ask(tool, Code.GET_ACL, subject="User:ann")
        assert (nothing.code, bytes(nothing.payload)) == (0, b"")
        unknown = await ask(tool, Code.GET_ACL, subject="User:bob")
        assert unknown.remark == "The subject is not exist."


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        ({}, "The policies is empty."),
        (acl(), "The policy entries is empty."),
        (acl(entry(actions=[])), "The actions is empty."),
        (acl(entry(actions=["Any"])), "The actions can not be Any."),
        (acl(entry(actions=["Publish"])), "is not one of"),
        (acl(entry("Queue:a")), "is not valid"),
        (acl(entry("Namespace:a")), "is not valid"),
        (acl(entry("Topic:a*b")), "only at its end"),
        (acl(entry("User:ann")), "is not valid"),
        (acl(entry("Topic:" + "x" * 256)), "only at its end"),
        (acl(entry(sourceIps=["10.0.0.300"])), "source address"),
        (acl(entry(sourceIps=[f"10.0.0.{n}" for n in range(17)])), "at most 16"),
        (acl(entry(decision="Perhaps")), "neither Allow nor Deny"),
        (acl(entry(), policy="Own"), "neither Custom nor Default"),
        (
            acl(*(entry(f"Topic:{n}") for n in range(ACL_ENTRIES_PER_USER_MAX + 1))),
            f"at most {ACL_ENTRIES_PER_USER_MAX} are kept",
        ),
    ],
)
async def test_policies_that_can_not_be_are_refused(
    body: dict[str, object], remark: str, tmp_path: Path
) -> None:
    """Policies that are not valid are refused as a whole."""
    async with broker_of_users(tmp_path) as (broker, tool):
        await create(tool)
        answer = await ask(tool, Code.CREATE_ACL, body, subject="User:ann")
        assert answer.code != ResponseCode.SUCCESS
        assert remark in str(answer.remark)
        user = broker.machine.users.get("ann")
        assert user is not None
        assert user.entries == ()


async def test_tools_that_tell_every_member_are_done_each_time(tmp_path: Path) -> None:
    """A repeated CREATE_USER or DELETE_ACL succeeds: RocketMQ's tools tell every member."""
    async with broker_of_users(tmp_path) as (broker, tool):
        for _ in range(3):
            assert (await create(tool)).code == ResponseCode.SUCCESS
        index = broker.machine.applied_index
        assert (await create(tool, userType="Super")).remark == "The user is existed"
        assert broker.machine.applied_index == index
        await ask(tool, Code.CREATE_ACL, acl(entry("Topic:a")), subject="User:ann")
        for _ in range(3):
            gone = await ask(tool, Code.DELETE_ACL, subject="User:ann")
            assert gone.code == ResponseCode.SUCCESS
        other = await ask(tool, Code.DELETE_ACL, subject="User:ann", resource="Topic:a")
        assert other.remark == "The acl is not exist."


async def test_users_need_the_secret_of_a_cluster(tmp_path: Path) -> None:
    """Users need the cluster's secret, which wraps their passwords."""
    async with broker_of_users(tmp_path, secret="") as (_, tool):
        answer = await create(tool)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "secretFile" in str(answer.remark)


async def test_replicas_and_restarts_have_the_same_users(tmp_path: Path) -> None:
    """Replicas and restarts have the same users; no log or snapshot shows a password."""
    (tmp_path / "a").mkdir()
    async with broker_of_users(tmp_path / "a") as (broker, tool):
        await create(tool)
        await create(tool, "bob", userType="Super")
        await ask(tool, Code.CREATE_ACL, acl(entry("Topic:a")), subject="User:ann")
        users = broker.machine.users
        follower = Machine(tmp_path / "b")
        entries = list(broker.ledger.entries(1))
        for each in entries:
            follower.apply(each)
        assert follower.users.digest() == users.digest()
        save(broker.machine)
        restarted = Machine(tmp_path / "a")
        assert restarted.restore() is None
        assert restarted.users.dump() == users.dump()
        given = Machine(tmp_path / "c")
        drained(given.install(*drained(broker.machine.capture()), 1))
        assert given.users.digest() == users.digest()
        kept = b"".join(bytes(each.body) for each in entries)
        kept += (tmp_path / "a" / "snapshot.msgpack").read_bytes()
        assert b"ann" in kept
        assert PASSWORD.encode() not in kept
        user = users.get("ann")
        assert user is not None
        assert Keys(b"another secret of a cluster").key(user) is None
        for machine in (follower, restarted, given):
            machine.close()


async def test_enforcing_needs_a_super_user_who_stays(tmp_path: Path) -> None:
    """Enforcing needs an enabled super user, and keeps the last one, who alone can end it."""
    async with broker_of_users(tmp_path) as (broker, tool):

        async def set_mode(mode: str) -> Command:
            setting = f"authorizationMode={mode}".encode()
            return await tool.request(Command(Code.UPDATE_BROKER_CONFIG, {}, setting), 10)

        refused = await set_mode("enforce")
        assert "no enabled super user" in str(refused.remark)
        assert (await set_mode("observe")).code == ResponseCode.SUCCESS
        await create(tool)
        await create(tool, "root", userType="Super", userStatus="disable")
        assert (await set_mode("enforce")).code == ResponseCode.SYSTEM_ERROR
        await ask(tool, Code.UPDATE_USER, {"userStatus": "enable"}, username="root")
        assert (await set_mode("enforce")).code == ResponseCode.SUCCESS
        assert broker.broker.core.guard.mode == "enforce"
        assert (await create(tool, "bob")).remark == "username cannot be null."
