"""Users and what each may do, as RocketMQ's tools administrate them (ACL 2.0).

One change is made at a time: it is decided by the state, appended and applied before the next one
is looked at. So of two administrators who take the last super users away one is refused. Texts that
scripts match on are RocketMQ's, word for word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import trio

from dledger import limits
from dledger.errors import BadInput
from dledger.net import Connection
from dledger.net.turns import in_turns, result_in_turns
from dledger.observe import get_logger
from dledger.program.audit_pages import answer_of
from dledger.remoting import headers
from dledger.remoting.bodies import Body, decode_body
from dledger.remoting.bodies.access import AclInfo, ObservedNeed, UserInfo
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header
from dledger.remoting.json_dialect import write_standard
from dledger.trust.guard import Asker, Mode
from dledger.trust.policies import (
    SUBJECT_PREFIX,
    Entry,
    described,
    distinct,
    each_entry,
    policy_type,
    resource,
)
from dledger.trust.rights import BY_SUPER, GET, cluster
from dledger.trust.signatures import check_name
from dledger.trust.users import User, Users, unwrapped, wrapped_anew
from dledger.trust.wrapping import Wrapping
from mqbroker.refusal import Refused, busy, invalid, no_permission, refusing, system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_all_to_admin, changes
from mqbroker.state.control import DeleteUser, PutUser

_TYPES: Final = {"super": True, "normal": False}
_STATUSES: Final = {"enable": True, "disable": False}
_log = get_logger(__name__)


class UserHandler:
    """Answers requests about users and their rights. Every replica answers requests that only
    read."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._one_by_one = trio.Lock()
        self._wrapped_anew: tuple[tuple[bytes, ...], int, int] = ((), -1, -1)
        self._last_revoked: tuple[headers.DeleteAclHeader | None, float] = (None, 0.0)

    # -- users ------------------------------------------------------------------------------

    @changes(RequestCode.CREATE_USER, rights=rights.PUT_USER)
    def create_user(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Make a user of the name in the header, with the password and type in the body."""
        name = decode_header(headers.CreateUserHeader, request).username
        info = decode_body(UserInfo, request.payload)
        return self._changed(request, lambda asker: self._created(name, info, asker))

    def _created(self, name: str, info: UserInfo, asker: Asker) -> PutUser | None:
        name = _named(name or info.username or "")
        known = self._users.get(name)
        if known is not None:
            if self._merged(User(name, b""), info) == known._replace(entries=()):
                return None  # RocketMQ's tools tell each member of a group, one after the other
            raise no_permission("The user is existed")
        if len(self._users) >= limits.USERS_MAX:
            raise busy(f"there are {limits.USERS_MAX} users, the bound: delete unused ones")
        if not info.password:
            raise invalid("The password is null.")
        user = self._merged(User(name, b""), info)
        if user.is_super:
            self._check_super(asker, "create", system_error)
        return self._put(user)

    @changes(RequestCode.UPDATE_USER, rights=rights.PUT_USER)
    def update_user(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Change what is given of a user; the rest stays as it is."""
        name = decode_header(headers.CreateUserHeader, request).username
        info = decode_body(UserInfo, request.payload)
        return self._changed(request, lambda asker: self._updated(name, info, asker))

    def _updated(self, name: str, info: UserInfo, asker: Asker) -> PutUser:
        known = self._users.get(_named(name or info.username or ""))
        if known is None:
            raise no_permission("The user is not exist")
        user = self._merged(known, info)
        if known.is_super:
            self._check_super(asker, "update")
        elif user.is_super:
            self._check_super(asker, "update", system_error)
        if not (user.is_super and user.enabled):
            self._check_last(known)
        return self._put(user)

    @changes(RequestCode.DELETE_USER, rights=rights.DELETE_USER)
    def delete_user(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Remove a user, and what that one may do. To remove nobody is done, too."""
        name = decode_header(headers.DeleteUserHeader, request).username
        return self._changed(request, lambda asker: self._deleted(name, asker))

    def _deleted(self, name: str, asker: Asker) -> DeleteUser | None:
        known = self._users.get(_named(name))
        if known is None:
            return None
        if known.is_super:
            self._check_super(asker, "delete")
            self._check_last(known)
        return DeleteUser(name, self._core.assignments.now_ms())

    @by_all_to_admin(RequestCode.GET_USER, rights=rights.ONESELF)
    def get_user(self, request: Command, connection: Connection) -> Command:
        """A user; no body if there is none. The password is told to super users who ask for it."""
        header = decode_header(headers.GetUserHeader, request)
        user = self._users.get(_named(header.username))
        if user is None:
            return request.reply()
        password = None
        if header.show_password and self._may_all(self._core.guard.asker):
            secrets = self._core.secrets
            # The second one says that the password can't be read.
            password = unwrapped(user, secrets.valid) or Wrapping(secrets.first).unwrap(
                user.name, user.wrapped
            )
        return request.reply(body=write_standard(_info(user, password)))

    @by_all_to_admin(RequestCode.LIST_USER, rights=cluster(GET))
    def list_users(self, request: Command, _: Connection) -> Awaitable[Command]:
        """The users whose names contain a text."""
        wanted = decode_header(headers.ListUserHeader, request).filter or ""
        return _listed(request, (_info(user) for user in self._users if wanted in user.name))

    # -- what they may do -------------------------------------------------------------------

    @changes(RequestCode.CREATE_ACL, RequestCode.UPDATE_ACL, rights=rights.PUT_ACL)
    def put_acl(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Add entries to a user's policies, or replace those of the same resources."""
        header = decode_header(headers.CreateAclHeader, request)
        acl = decode_body(AclInfo, request.payload)
        subject = header.subject or acl.subject or ""
        given: list[Entry] = []

        def check() -> Iterator[None]:
            for entry in each_entry(acl):
                given.append(entry)
                yield

        return self._changed(
            request, lambda asker: self._granted(subject, distinct(given), asker), check()
        )

    def _granted(self, subject: str, given: Sequence[Entry], asker: Asker) -> PutUser:
        user = self._subject(subject, f"The subject of {subject} is not exist.")
        self._check_granting(user, asker)
        kept = {(entry.policy, entry.resource): entry for entry in user.entries}
        kept |= {(entry.policy, entry.resource): entry for entry in given}
        others = self._users.entries - len(user.entries)
        for count, most, whose in (
            (len(kept), limits.ACL_ENTRIES_PER_USER_MAX, f"user {user.name}"),
            (others + len(kept), limits.ACL_ENTRIES_MAX, "all users"),
        ):
            if count > most:
                raise busy(f"{count} entries of {whose}; at most {most} are kept: use prefixes")
        return self._put(user._replace(entries=tuple(kept.values())))

    @changes(RequestCode.DELETE_ACL, rights=rights.DELETE_ACL)
    def delete_acl(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Remove the entry of one resource, or all."""
        header = decode_header(headers.DeleteAclHeader, request)
        return self._changed(request, lambda asker: self._revoked(header, asker))

    def _revoked(self, header: headers.DeleteAclHeader, asker: Asker) -> PutUser | None:
        user = self._subject(header.subject, "The acl is not exist.")
        self._check_granting(user, asker)
        kept: tuple[Entry, ...] = ()
        if header.resource:
            gone = policy_type(header.policy_type), resource(header.resource)
            kept = tuple(e for e in user.entries if (e.policy, e.resource) != gone)
        elif header.policy_type:
            gone_type = policy_type(header.policy_type)
            kept = tuple(e for e in user.entries if e.policy != gone_type)
        now_s, (last, last_s) = self._core.clock_s(), self._last_revoked
        if len(kept) == len(user.entries):
            if header == last and now_s - last_s < limits.REVOKED_AGAIN_S:
                return None  # the same: each member is told
            raise no_permission("The acl is not exist.")
        self._last_revoked = header, now_s
        return self._put(user._replace(entries=kept))

    @by_all_to_admin(RequestCode.GET_ACL, rights=rights.ONESELF)
    def get_acl(self, request: Command, _: Connection) -> Command:
        """Entries of a user; the body is empty if there are none."""
        user = self._subject(decode_header(headers.GetAclHeader, request).subject, _NO_SUBJECT)
        if not user.entries:
            return request.reply()
        return request.reply(body=write_standard(described(user.name, user.entries)))

    @by_all_to_admin(RequestCode.LIST_ACL, rights=cluster(GET))
    def list_acls(self, request: Command, _: Connection) -> Awaitable[Command]:
        """The policies of subjects, with the entries of resources, that contain texts."""
        header = decode_header(headers.ListAclHeader, request)
        who, what = header.subject_filter or "", header.resource_filter or ""
        found = (
            described(user.name, entries)
            for user in self._users
            if who in SUBJECT_PREFIX + user.name
            and (entries := [each for each in user.entries if what in each.resource])
        )
        return _listed(request, found)

    @by_all_to_admin(RequestCode.LIST_OBSERVED, rights=cluster(GET))
    def list_observed(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Rights that users needed and lacked, and senders that nobody knows, at this replica since
        it started."""
        guard = self._core.guard
        needs = (
            ObservedNeed(user, need.kind, need.name, list(need.actions), count)
            for (user, need), count in sorted(guard.observed.items())
        )
        unknown = (
            ObservedNeed("", "", "", [], count, source, claimed, reason)
            for (source, claimed), (count, reason) in sorted(guard.strangers.items())
        )
        return _listed(request, (*needs, *unknown))

    @by_all_to_admin(RequestCode.LIST_AUDITED, rights=BY_SUPER)
    async def list_audited(self, request: Command, _: Connection) -> Command:
        """A page of this replica's own audit log."""
        return await result_in_turns(answer_of(request, self._core.auditor.log))

    # -- parts ------------------------------------------------------------------------------

    @property
    def _users(self) -> Users:
        return self._core.machine.users

    def _changed(
        self,
        request: Command,
        decide: Callable[[Asker], PutUser | DeleteUser | None],
        before: Iterable[None] = (),
    ) -> Awaitable[Command]:
        """Make the change that is decided when its turn has come, after the steps of `before`."""
        asker = self._core.guard.asker

        async def make() -> Command:
            await in_turns(before)
            async with self._one_by_one:
                self._core.role.check_serving()
                if not self._core.secrets:
                    raise system_error(
                        "users need the cluster's secret, with which their passwords are kept: "
                        "give each server its secretFile (docs/explanation/security.md)"
                    )
                change = decide(asker)
                if change is not None:
                    await self._core.definitions.changed(change)
            name = change.user.name if isinstance(change, PutUser) else getattr(change, "name", "")
            _log.info("user changed", user=name, by=asker.name, source=asker.source)
            return request.reply()

        return make()

    async def wrap_anew(self) -> None:
        """While this replica leads, wrap passwords with the first secret that are wrapped with
        another valid one. The table is gone through once for each of its versions."""
        core = self._core
        table = core.secrets.valid, self._users.version, core.role.term
        if not core.role.serving or table == self._wrapped_anew:
            return
        for name in [user.name for user in self._users]:
            async with self._one_by_one:
                known = self._users.get(name)
                anew = None if known is None else wrapped_anew(known, core.secrets)
                if anew is not None:
                    core.role.check_serving()
                    await core.definitions.changed(self._put(anew))
                    _log.info("password wrapped anew", user=name)
        self._wrapped_anew = core.secrets.valid, self._users.version, core.role.term

    def _put(self, user: User) -> PutUser:
        return PutUser(user, self._core.assignments.now_ms())

    def _merged(self, user: User, info: UserInfo) -> User:
        """A user with what is given."""
        if info.password:
            size = len(info.password.encode(errors="replace"))
            if size > limits.PASSWORD_BYTES_MAX or not info.password.isprintable():
                raise BadInput(
                    f"a password of {size} bytes; it has at most {limits.PASSWORD_BYTES_MAX}, and "
                    "only characters that can be shown"
                )
            wrapping = Wrapping(self._core.secrets.first)
            user = user._replace(wrapped=wrapping.wrap(user.name, info.password))
        return user._replace(
            is_super=_chosen("userType", info.user_type, _TYPES, user.is_super),
            enabled=_chosen("userStatus", info.user_status, _STATUSES, user.enabled),
            fresh=user.fresh if info.require_fresh is None else info.require_fresh,
        )

    def _subject(self, subject: str, missing: str) -> User:
        if not subject:
            raise invalid("The subject is null.")
        kind, _, name = subject.partition(":")
        user = self._users.get(name) if f"{kind.capitalize()}:" == SUBJECT_PREFIX else None
        if user is None:
            raise no_permission(missing)
        return user

    def _may_all(self, asker: Asker) -> bool:
        """Whether the change is a super user's. Unless rights are enforced an administrator's
        address, or the secret, has let it in."""
        return self._core.guard.mode is not Mode.ENFORCE or asker.may_all

    def _check_super(
        self, asker: Asker, action: str, refusal: Callable[[str], Refused] = no_permission
    ) -> None:
        if not self._may_all(asker):
            raise refusal(f"The super user can only be {action} by super user")

    def _check_granting(self, user: User, asker: Asker) -> None:
        """Check that only a super user changes the rights of a super user: the type alone decides
        what that one may do."""
        if user.is_super:
            self._check_super(asker, "update")

    def _check_last(self, user: User) -> None:
        """Keep one enabled super user while rights are enforced."""
        others = any(
            each.is_super and each.enabled for each in self._users if each.name != user.name
        )
        is_last = user.is_super and user.enabled and not others
        if is_last and self._core.guard.mode is Mode.ENFORCE:
            raise no_permission(
                f"User:{user.name} is the last enabled super user, and rights are enforced: make "
                "another one first (mqadmin createUser -t Super)"
            )


_NO_SUBJECT: Final = "The subject is not exist."


def _named(name: str) -> str:
    if not name:
        raise invalid("The username is null.")
    with refusing(BadInput, invalid):
        check_name(name)
    return name


def _chosen(key: str, given: str | None, values: dict[str, bool], kept: bool) -> bool:
    if not given:
        return kept
    if given.lower() not in values:
        raise BadInput(f"{key} {given[:80]!r} is neither {' nor '.join(values)}")
    return values[given.lower()]


def _info(user: User, password: str | None = None) -> UserInfo:
    return UserInfo(
        user.name,
        password,
        "Super" if user.is_super else "Normal",
        "enable" if user.enabled else "disable",
        user.fresh or None,
    )


async def _listed(request: Command, rows: Iterable[Body]) -> Command:
    """An array, written in slices; no body if it is empty, as RocketMQ answers."""
    pieces: list[bytes] = []
    await in_turns(_written(rows, pieces))
    return request.reply(body=b"[" + b",".join(pieces) + b"]" if pieces else b"")


def _written(rows: Iterable[Body], pieces: list[bytes]) -> Iterator[None]:
    size = 0
    for row in rows:
        pieces.append(write_standard(row))
        size += len(pieces[-1]) + 1
        if size > limits.ANSWER_BODY_BYTES_MAX:
            raise system_error(
                f"an answer above {limits.ANSWER_BODY_BYTES_MAX} bytes: ask with a filter"
            )
        yield
