"""Users and what they may do, as RocketMQ's tools write them (ACL 2.0)."""

from __future__ import annotations

from dledger.remoting.bodies.base import Body, ClientBody


class UserInfo(ClientBody):
    """A user in requests and answers. Members that an update leaves out stay as they are.

    `require_fresh` is ours: only requests that can't be sent again are taken from this user.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None
    require_fresh: bool | None = None


class PolicyEntryInfo(ClientBody):
    """The actions on one resource that are allowed or denied, and from where."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(ClientBody):
    """Entries of one type: `Custom`, or `Default`, which counts where no custom entry matches."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(ClientBody):
    """The policies of one subject, `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class ObservedNeed(Body):
    """A right that a user needed and lacked, while rights were observed: one of the actions.

    Or, with a `source`, requests of nobody who is known: from which address, under which name, and
    the last reason. Nothing can be granted for them, so `user` and the right are empty.
    """

    user: str
    kind: str
    name: str
    actions: list[str]
    count: int
    source: str = ""
    claimed: str = ""
    reason: str = ""
