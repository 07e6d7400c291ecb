"""How clients get into a cluster: by which certificates, as which user.

In a cluster with users, rights are enforced from its first message on. Clients are one user who may
use all topics and groups; the harness acts by the cluster's secret. Workers get files, so no
list of processes has a password.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final, TypedDict

import msgspec

from dledger.files import replace
from dledger.limits import FOLDER_MODE
from dledger.tls.options import Tls, tls_named
from mqchaos.cluster import certificates
from mqclient import Admin
from mqclient.connection.credentials import password_in

USER: Final = "clients"
SUPER_USER: Final = "root"
_FOLDER: Final = "users"


class Access(TypedDict):
    """The access of a client of ours: `Producer(..., **access)`."""

    tls: Tls | bool | None
    user: str | None
    secret: str | None


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client's certificates and user, as paths.

    `ca`: the authorities' file, "system" for the machine's; "" for plain text. `user`: whose
    password is in a file; "" for nobody's.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""

    def access(self) -> Access:
        """The credentials themselves, read from their files. Raises ConfigError if one can't be
        read."""
        tls = tls_named(self.ca, self.cert or None, self.key or None) if self.ca else None
        if not self.user:
            return Access(tls=tls, user=None, secret=None)
        return Access(tls=tls, user=self.user, secret=password_in(Path(self.password_file)))


NO_IDENTITY: Final = Identity()
"""Plain text, and no user."""


def of_clients(directory: Path, *, tls: bool, users: bool) -> Identity:
    """The identity of a cluster's clients."""
    files = certificates.of_clients(directory) if tls else Tls()
    return Identity(
        ca=str(files.ca or ""),
        cert=str(files.cert or ""),
        key=str(files.key or ""),
        user=USER if users else "",
        password_file=str(_file(directory, USER)) if users else "",
    )


def make_passwords(directory: Path) -> None:
    """Files for the users of a new cluster."""
    (directory / _FOLDER).mkdir(FOLDER_MODE)
    for user in (SUPER_USER, USER):
        replace(_file(directory, user), secrets.token_urlsafe(16).encode() + b"\n")


async def enforce(directory: Path, admin: Admin) -> None:
    """Make the users, and enforce rights from then on."""
    for user in (SUPER_USER, USER):
        password = password_in(_file(directory, user))
        await admin.users.create(user, password, super_user=user == SUPER_USER)
    await admin.rights.grant(USER, ["Topic:*", "Group:*"], ["All"])
    await admin.settings.update_broker_config("authorizationMode", "enforce")


def _file(directory: Path, user: str) -> Path:
    return directory / _FOLDER / f"{user}.password"
