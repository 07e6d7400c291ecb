"""createAcl, updateAcl, deleteAcl, getAcl, listAcl, aclExplain, aclSuggest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from mqclient.admin import Admin
from mqclient.admin.access.rights import Grant
from mqclient.admin.access.suggest import Stranger, Suggestion
from mqclient.commands.access.users import DryRun, asked_unless
from mqclient.commands.terminal.options import DEFAULTS, ChangedBroker, ChangedCluster, Common
from mqclient.commands.terminal.output import Table, joined

Subject = Annotated[
    str, Parameter(name=["--subject", "-s"], help="The user, as User:NAME or NAME.")
]
Resources = Annotated[
    str,
    Parameter(
        name=["--resources", "-r"],
        help="Topic:NAME, Group:NAME or Cluster:NAME, with commas; a name may end with *.",
    ),
]
Decision = Annotated[Literal["Allow", "Deny"], Parameter(name=["--decision", "-d"])]
Sources = Annotated[
    str, Parameter(name=["--sourceIp", "-i"], help="Only from these addresses and networks.")
]
Actions = Annotated[
    str,
    Parameter(
        name=["--actions", "-a"], help="Pub, Sub, Create, Update, Delete, Get, List; or All."
    ),
]


def create_acl(
    *,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: Decision = "Allow",
    source_ip: Sources = "",
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    dry_run: DryRun = False,
    common: Common = DEFAULTS,
) -> None:
    """Allow or deny a user actions on resources; an entry for the same resource is replaced.

    For example: -s User:ann -r Topic:Orders,Group:g -a Pub,Sub -i 10.0.0.0/8

    For example:

        mqadmin createAcl -s User:shop -r Topic:Orders -a Pub -n 127.0.0.1:9876
        mqadmin updateAcl -s User:shop -r Topic:Orders -a Pub,Sub -n 127.0.0.1:9876
    """
    named, user = _parts(resources), _user(subject)
    groups = asked_unless(
        dry_run,
        common,
        lambda admin: admin.rights.grant(
            user,
            named,
            _parts(actions),
            sources=_parts(source_ip),
            decision=decision,
            broker=broker,
            cluster=cluster,
        ),
    )
    result = {
        **{"user": user, "resources": named, "actions": _parts(actions), "decision": decision},
        **{"sources": _parts(source_ip), "brokers": groups, "dryRun": dry_run},
    }
    what = f"{user}: {decision} {actions} on {resources}"
    on = f"on {joined(groups)}" if groups else "would be granted"
    common.say("createAcl", result, f"{what}, {on}")


update_acl = create_acl
"""RocketMQ's second name of `createAcl`: an entry of the same resource is replaced."""


def delete_acl(
    *,
    subject: Subject,
    resources: Annotated[str | None, Parameter(name=["--resources", "-r"])] = None,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    dry_run: DryRun = False,
    common: Common = DEFAULTS,
) -> None:
    """Remove a user's rights on one resource, or all of them.

    For example:

        mqadmin deleteAcl -s User:shop -r Topic:Orders -n 127.0.0.1:9876

    Parameters
    ----------
    resources
        Only the entry of this resource.
    """
    user = _user(subject)
    groups = asked_unless(
        dry_run,
        common,
        lambda admin: admin.rights.revoke(user, resources, broker=broker, cluster=cluster),
    )
    result = {"user": user, "resource": resources, "brokers": groups, "dryRun": dry_run}
    what = resources or "all resources"
    on = f"removed on {joined(groups)}" if groups else "would be removed"
    common.say("deleteAcl", result, f"{user}: what it may do on {what} is {on}")


def get_acl(
    *,
    subject: Subject,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """Show the rights of a user.

    For example:

        mqadmin getAcl -s User:shop -n 127.0.0.1:9876
    """
    found = common.ask(
        lambda admin: admin.rights.of_user(_user(subject), broker=broker, cluster=cluster)
    )
    common.show("getAcl", found, _table(found))


def list_acl(
    *,
    subject: Annotated[
        str, Parameter(name=["--subject", "-s"], help="Only users whose names contain this.")
    ] = "",
    resource: Annotated[
        str, Parameter(name=["--resource", "-r"], help="Only resources that contain this.")
    ] = "",
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """List the rights of users, or only of users and resources whose names contain a text.

    For example:

        mqadmin listAcl
        mqadmin listAcl -s shop
    """
    found = common.ask(
        lambda admin: admin.rights.list(_user(subject), resource, broker=broker, cluster=cluster)
    )
    common.show("listAcl", found, _table(found))


def acl_explain(
    *,
    user: Annotated[str, Parameter(name=["--username", "-u"], help="Name of the user.")],
    resource: Annotated[str, Parameter(name=["--resource", "-r"], help="Such as Topic:Orders.")],
    action: Annotated[str, Parameter(name=["--action", "-a"], help="Such as Pub.")],
    source_ip: Annotated[str, Parameter(name=["--sourceIp", "-i"])] = "127.0.0.1",
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """Show whether a user may do something, and which entry of its policies decides.

    For example:

        mqadmin aclExplain -u shop -r Topic:Orders -a Pub -n 127.0.0.1:9876

    Parameters
    ----------
    source_ip
        The address that the request would come from.
    """
    found = common.ask(
        lambda admin: admin.rights.explain(
            user, resource, action, source_ip, broker=broker, cluster=cluster
        )
    )
    rows = [(each.broker_name, "yes" if each.allowed else "no", each.because) for each in found]
    common.show("aclExplain", found, Table(("BROKER", "ALLOWED", "BECAUSE"), rows))


def acl_suggest(
    *, broker: ChangedBroker = None, cluster: ChangedCluster = None, common: Common = DEFAULTS
) -> None:
    """Write the smallest policies for rights that users lacked, since brokers began to observe.

    The table has commands that grant these rights. Check each command before you run it. Senders
    that no right helps, since they do not sign or sign wrongly, are named on stderr.

    For example:

        mqadmin aclSuggest -n 127.0.0.1:9876
    """

    async def ask(admin: Admin) -> tuple[tuple[Suggestion, ...], tuple[Stranger, ...]]:
        where = {"broker": broker, "cluster": cluster}
        return await admin.rights.suggest(**where), await admin.rights.strangers(**where)

    found, unknown = common.ask(ask)
    for each in unknown:
        claimed = f" as {each.user!r}" if each.user else ""
        sys.stderr.write(
            f"{each.source} sends{claimed} what is refused whatever you grant: {each.reason} "
            f"({each.requests} requests)\n"
        )
    rows = [
        (
            each.requests,
            f"mqadmin createAcl -s User:{each.user} -r {each.resource} -a {','.join(each.actions)}",
        )
        for each in found
    ]
    common.show("aclSuggest", found, Table(("REQUESTS", "COMMAND"), rows))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _user(subject: str) -> str:
    return subject.removeprefix("User:")


def _table(grants: Sequence[Grant]) -> Table:
    rows = [
        (
            *(each.broker_name, each.user, each.policy, each.decision, each.resource),
            *(",".join(each.actions), ",".join(each.sources)),
        )
        for each in grants
    ]
    headers = ("BROKER", "USER", "POLICY", "DECISION", "RESOURCE", "ACTIONS", "FROM")
    return Table(headers, rows)
