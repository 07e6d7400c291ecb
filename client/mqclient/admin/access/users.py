"""Users of a cluster, kept by each broker group; a change goes to all groups that are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from dledger.errors import BadInput
from dledger.remoting.bodies import BrokerData, decode_body, encode_body
from dledger.remoting.bodies.access import UserInfo
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    CreateUserHeader,
    DeleteUserHeader,
    GetUserHeader,
    ListUserHeader,
    UpdateUserHeader,
)
from mqclient.admin.session import Part, UnknownTarget, broker_name, change_each, run_for_each

RowT = TypeVar("RowT")


class UserState(msgspec.Struct, frozen=True):
    """A user as a broker group has it. The password is there only if it was asked for."""

    broker_name: str
    name: str
    super_user: bool
    enabled: bool
    require_fresh: bool
    password: str | None = None


class Users(Part):
    """Part `admin.users`: makes, changes, removes and lists users. Changes return the broker
    names."""

    async def create(
        self,
        name: str,
        password: str,
        *,
        super_user: bool = False,
        require_fresh: bool = False,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Make a user, who may do nothing as yet unless it is a super user.

        With `require_fresh` only requests that can't be sent again are taken from it: those of our
        clients. Raises Refused if there is such a user.
        """
        info = UserInfo(name, password, _type(super_user), None, require_fresh or None)
        return await self._change(CreateUserHeader(name), encode_body(info), cluster, broker)

    async def update(
        self,
        name: str,
        *,
        password: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        require_fresh: bool | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Change what is given; the rest stays as it is. Raises Refused if there is no such
        user."""
        status = None if enabled is None else "enable" if enabled else "disable"
        kind = None if super_user is None else _type(super_user)
        info = UserInfo(name, password, kind, status, require_fresh)
        return await self._change(UpdateUserHeader(name), encode_body(info), cluster, broker)

    async def delete(
        self, name: str, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Remove a user, and what it may do, wherever it is. Raises UnknownTarget if that is
        nowhere."""

        async def delete(group: BrokerData) -> str | None:
            answer = await self._requests.ask_leader(group, GetUserHeader(name))
            if not len(answer.payload):
                return None
            await self._requests.ask_leader(group, DeleteUserHeader(name))
            return group.broker_name

        groups = await self._session.broker_groups(cluster, broker, only_one_cluster=True)
        names = await change_each(delete, groups, broker_name)
        if not names:
            raise unknown_user(name)
        return names

    async def get(
        self,
        name: str,
        *,
        show_password: bool = False,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[UserState, ...]:
        """A user as each broker group has it; nothing of those that have not. Super users
        alone get the password."""
        header = GetUserHeader(name, show_password or None)

        async def get(group: BrokerData) -> list[UserState]:
            answer = await self._requests.ask_leader(group, header)
            if not len(answer.payload):
                return []
            return [_state(group, decode_body(UserInfo, answer.payload))]

        groups = await self._session.broker_groups(cluster, broker)
        return tuple(user for found in await run_for_each(get, groups) for user in found)

    async def list(
        self, containing: str = "", *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[UserState, ...]:
        """The users whose names contain a text, by broker group."""
        header = ListUserHeader(containing or None)

        async def found(group: BrokerData) -> list[UserState]:
            answer = await self._requests.ask_leader(group, header)
            return [_state(group, info) for info in listed(answer, UserInfo)]

        groups = await self._session.broker_groups(cluster, broker)
        return tuple(user for users in await run_for_each(found, groups) for user in users)


def unknown_user(name: str) -> UnknownTarget:
    """The error for a user that no broker group has."""
    return UnknownTarget(f"there is no user {name!r}: check the name (mqadmin listUser)")


def listed(answer: Command, row: type[RowT]) -> Sequence[RowT]:
    """The rows of an array; none if there is no body. Raises BadInput for what is none."""
    if not len(answer.payload):
        return []
    try:
        rows = msgspec.json.decode(answer.payload, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise BadInput(f"the answer is not an array of {row.__name__}: {error}") from error
    return [decode_body(row, memoryview(each)) for each in rows]


def _type(super_user: bool) -> str:
    return "Super" if super_user else "Normal"


def _state(group: BrokerData, info: UserInfo) -> UserState:
    return UserState(
        group.broker_name,
        info.username or "",
        info.user_type == "Super",
        info.user_status != "disable",
        bool(info.require_fresh),
        info.password,
    )
