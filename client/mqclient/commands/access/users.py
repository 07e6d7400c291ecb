"""createUser, updateUser, deleteUser, getUser, listUser.

A new password comes from a file or the environment: arguments are seen in process lists.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mqclient.admin import Admin
from mqclient.admin.access.users import UserState, unknown_user
from mqclient.commands.terminal.options import (
    DEFAULTS,
    ChangedBroker,
    ChangedCluster,
    Common,
    Switch,
    read_password,
    switched,
)
from mqclient.commands.terminal.output import Table, joined

Name = Annotated[str, Parameter(name=["--username", "-u"], help="Name of the user.")]
NewPassword = Annotated[
    Path | None,
    Parameter(
        name=["--new-password-file"],
        help="A file whose first line is the password; else $DLEDGER_NEW_PASSWORD is.",
    ),
]
UserType = Annotated[
    Literal["Super", "Normal"] | None,
    Parameter(name=["--userType", "-t"], help="Super may do everything."),
]
Fresh = Annotated[
    Switch | None,
    Parameter(
        name=["--require-fresh"], help="true: take no requests from it that could be sent again."
    ),
]
DryRun = Annotated[
    bool, Parameter(name="--dry-run", negative=(), help="Show what would be done, and do nothing.")
]
ENVIRONMENT_NEW = "DLEDGER_NEW_PASSWORD"


def create_user(
    *,
    username: Name,
    new_password_file: NewPassword = None,
    user_type: UserType = None,
    require_fresh: Fresh = None,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    dry_run: DryRun = False,
    common: Common = DEFAULTS,
) -> None:
    """Create a user, who may do nothing until createAcl allows it, unless it is a super user.

    The password is the first line of a file, or DLEDGER_NEW_PASSWORD in the environment.

    For example:

        mqadmin createUser -u shop --new-password-file shop.password
    """
    password = read_password(new_password_file, f"user {username}", ENVIRONMENT_NEW)
    fresh, is_super = switched(require_fresh) is True, user_type == "Super"
    result = {"user": username, "superUser": is_super, "requireFresh": fresh, "dryRun": dry_run}
    groups = asked_unless(
        dry_run,
        common,
        lambda admin: admin.users.create(
            username,
            password,
            super_user=is_super,
            require_fresh=fresh,
            broker=broker,
            cluster=cluster,
        ),
    )
    _say(common, "createUser", result, f"user {username}", "made", groups)


def update_user(
    *,
    username: Name,
    new_password_file: NewPassword = None,
    user_type: UserType = None,
    user_status: Annotated[
        Literal["enable", "disable"] | None, Parameter(name=["--userStatus", "-s"])
    ] = None,
    require_fresh: Fresh = None,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    dry_run: DryRun = False,
    common: Common = DEFAULTS,
) -> None:
    """Change the named settings of a user; the other settings stay.

    For example:

        mqadmin updateUser -u shop --new-password-file shop.password

    Parameters
    ----------
    user_status
        A disabled user is refused everything, and keeps what it may do.
    """
    password = None
    if new_password_file is not None or ENVIRONMENT_NEW in os.environ:
        password = read_password(new_password_file, f"user {username}", ENVIRONMENT_NEW)
    enabled = None if user_status is None else user_status == "enable"
    is_super = None if user_type is None else user_type == "Super"
    fresh = switched(require_fresh)
    result = {
        **{"user": username, "superUser": is_super, "enabled": enabled, "requireFresh": fresh},
        **{"newPassword": password is not None, "dryRun": dry_run},
    }
    groups = asked_unless(
        dry_run,
        common,
        lambda admin: admin.users.update(
            username,
            password=password,
            super_user=is_super,
            enabled=enabled,
            require_fresh=fresh,
            broker=broker,
            cluster=cluster,
        ),
    )
    _say(common, "updateUser", result, f"user {username}", "changed", groups)


def delete_user(
    *,
    username: Name,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    dry_run: DryRun = False,
    common: Common = DEFAULTS,
) -> None:
    """Delete a user and its rights.

    For example:

        mqadmin deleteUser -u shop -n 127.0.0.1:9876
    """
    groups = asked_unless(
        dry_run,
        common,
        lambda admin: admin.users.delete(username, broker=broker, cluster=cluster),
    )
    result = {"user": username, "dryRun": dry_run}
    _say(common, "deleteUser", result, f"user {username}", "removed", groups)


def get_user(
    *,
    username: Name,
    show_password: Annotated[bool, Parameter(name="--show-password", negative=())] = False,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """Show a user, as each broker group has it.

    For example:

        mqadmin getUser -u shop -n 127.0.0.1:9876

    Parameters
    ----------
    show_password
        With -o json, the password, too, for super users.
    """

    async def get(admin: Admin) -> tuple[UserState, ...]:
        found = await admin.users.get(
            username, show_password=show_password, broker=broker, cluster=cluster
        )
        if not found:
            raise unknown_user(username)
        return found

    found = common.ask(get)
    common.show("getUser", found, _table(found))


def list_user(
    *,
    filter: Annotated[  # noqa: A002 - as RocketMQ's option is called
        str, Parameter(name=["--filter", "-f"], help="Only names that contain this.")
    ] = "",
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """List the users of each broker group, or only users whose names contain a text.

    For example:

        mqadmin listUser
        mqadmin listUser -f shop
    """
    found = common.ask(lambda admin: admin.users.list(filter, broker=broker, cluster=cluster))
    common.show("listUser", found, _table(found))


def asked_unless(
    dry_run: bool,
    common: Common,
    change: Callable[[Admin], Awaitable[tuple[str, ...]]],
) -> tuple[str, ...]:
    """The groups where a change was made; none if it was only to be shown."""
    return () if dry_run else common.ask(change)


def _table(users: Sequence[UserState]) -> Table:
    rows = [
        (
            *(user.broker_name, user.name, "Super" if user.super_user else "Normal"),
            *("enable" if user.enabled else "disable", user.require_fresh),
        )
        for user in users
    ]
    return Table(("BROKER", "USER", "TYPE", "STATUS", "FRESH"), rows)


def _say(
    common: Common,
    command: str,
    result: Mapping[str, object],
    what: str,
    done: str,
    groups: tuple[str, ...],
) -> None:
    on = f"{what} is {done} on {joined(groups)}" if groups else f"{what} would be {done}"
    common.say(command, {**result, "brokers": groups}, on)
