"""Headers of the requests about users and what they may do (RocketMQ's ACL 2.0)."""

from __future__ import annotations

from dledger.remoting.headers.base import Header


class CreateUserHeader(Header, frozen=True):
    """CREATE_USER (3001)."""

    username: str


class UpdateUserHeader(Header, frozen=True):
    """UPDATE_USER (3002)."""

    username: str


class DeleteUserHeader(Header, frozen=True):
    """DELETE_USER (3003)."""

    username: str


class GetUserHeader(Header, frozen=True):
    """GET_USER (3004). `show_password` is ours: stock tools never get a password."""

    username: str
    show_password: bool | None = None


class ListUserHeader(Header, frozen=True):
    """LIST_USER (3005), of users whose names contain `filter`."""

    filter: str | None = None


class ListAuditedHeader(Header, frozen=True):
    """LIST_AUDITED (9016), ours. `after` is where the page before ended. The answer has no lines
    before `begin_ms`, of another user than `user`, or, with `refused`, of requests that were not
    refused."""

    after: str | None = None
    begin_ms: int | None = None
    user: str | None = None
    refused: bool | None = None


class CreateAclHeader(Header, frozen=True):
    """CREATE_ACL (3006)."""

    subject: str


class UpdateAclHeader(Header, frozen=True):
    """UPDATE_ACL (3007)."""

    subject: str


class DeleteAclHeader(Header, frozen=True):
    """DELETE_ACL (3008): the entries about one resource, or all entries of the subject."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class GetAclHeader(Header, frozen=True):
    """GET_ACL (3009)."""

    subject: str


class ListAclHeader(Header, frozen=True):
    """LIST_ACL (3010), of subjects and resources that contain the filters."""

    subject_filter: str | None = None
    resource_filter: str | None = None


class RegisterUsersHeader(Header, frozen=True):
    """REGISTER_USERS (9014), from a leader to a name server. The body has all users of the leader's
    group."""

    cluster_name: str
    broker_name: str


class SignOnResponseHeader(Header, frozen=True):
    """The answer to SIGN_ON (9013): the nonce that stamps on this connection must have, and the
    hash of long bodies that is accepted beside SHA-256."""

    nonce: str
    body_hash: str | None = None
