"""The parts that all commands share: options with their help, one administration session, output.

Exit status: 0 done, 1 the cluster could not do it (or not in time), 2 the command line is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import anyio
from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.addresses import parse_addresses
from dledger.errors import BadInput, ConfigError
from dledger.program.whole import Whole
from dledger.tls.options import Tls, tls_named
from dledger.trust.secret import read_secrets
from mqclient import limits
from mqclient.admin import Admin
from mqclient.commands.terminal.output import Table, print_json, print_table
from mqclient.connection.credentials import password_in

_T = TypeVar("_T")

_TOPIC = ["--topic", "-t"]
_GROUP = ["--group", "-g", "--groupName", "--consumerGroup"]
_BROKER = ["--broker", "-b", "--brokerName", "--brokerAddr"]
_CLUSTER = ["--cluster", "-c", "--clusterName"]

Topic = Annotated[str, Parameter(name=_TOPIC, help="Name of the topic.")]
OneTopic = Annotated[str | None, Parameter(name=_TOPIC, help="Only this topic.")]
Group = Annotated[str, Parameter(name=_GROUP, help="Name of the consumer group.")]
BrokerName = Annotated[str, Parameter(name=_BROKER, help="Name of the broker group.")]
Cluster = Annotated[str | None, Parameter(name=_CLUSTER, help="Only this cluster.")]

ChangedBroker = Annotated[
    str | None,
    Parameter(
        name=_BROKER,
        help="On this broker group only: its name, or the address of one of its members.",
    ),
]
ChangedCluster = Annotated[
    str | None,
    Parameter(
        name=_CLUSTER,
        help="On every broker group of this cluster; may be left out if there is one cluster.",
    ),
]
AskedBroker = Annotated[
    str | None,
    Parameter(
        name=_BROKER,
        help="A broker by its address (host:port), or the leader of a group by its name.",
    ),
]
AskedCluster = Annotated[
    str | None,
    Parameter(
        name=_CLUSTER,
        help="Instead, the leaders of this cluster; without either, of all clusters.",
    ),
]
CleanedBroker = Annotated[
    str | None,
    Parameter(
        name=_BROKER,
        help="A broker by its address (host:port), or all brokers of a group by its name.",
    ),
]
CleanedCluster = Annotated[
    str | None,
    Parameter(
        name=_CLUSTER,
        help="Instead, all brokers of this cluster; without either, of all clusters.",
    ),
]

Key = Annotated[str, Parameter(name=["--key", "-k"])]
Value = Annotated[str, Parameter(name=["--value", "-v"], allow_leading_hyphen=True)]
Namespace = Annotated[
    str, Parameter(name=["--namespace", "-s"], help="Such as ORDER_TOPIC_CONFIG.")
]
ENVIRONMENT_PASSWORD = "DLEDGER_PASSWORD"  # noqa: S105 - a name
Switch = Literal["true", "false"]
"""A switch as RocketMQ's tools spell it: an option that is given with its value."""


def read_password(file: Path | None, whose: str, variable: str = ENVIRONMENT_PASSWORD) -> str:
    """A password, from a file or the environment. Raises ConfigError."""
    password = os.environ.get(variable, "") if file is None else password_in(file)
    if not password:
        raise ConfigError(
            f"{whose} needs a password: name its file, or set the environment's {variable}"
        )
    return password


def switched(given: Switch | None) -> bool | None:
    """The value of such an option; None if it is not given."""
    return None if given is None else given == "true"


QueueCount = Annotated[Whole, Parameter(validator=Number(gte=1))]

EXIT_PARTLY = 1
"""The status if some were done or shown, and others not."""
_left_out: list[str] = []
"""Results that the command's last call has not shown. A process is one command."""
_unasked: list[str] = []
"""Broker groups of those that have no leader, for example; that others are away is no failure."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Output:
    """How a command shows its result."""

    output: Annotated[
        Literal["table", "json"],
        Parameter(name=["--output", "-o"], help="table for people, json for programs."),
    ] = "table"

    def show(self, command: str, result: object, table: Table) -> None:
        """Print a result in the form that was asked for, and what it does not show."""
        table = replace(table, left_out=[*table.left_out, *_left_out])
        if self.output == "json":
            print_json(command, result, table.left_out)
        else:
            print_table(table)

    def say(self, command: str, result: object, sentence: str) -> None:
        """Print a result that people can read in one sentence."""
        self.show(command, result, Table((), (), [sentence]))


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Common(Output):
    """Options of every command that asks a cluster."""

    namesrv: Annotated[
        str,
        Parameter(
            name=["--namesrvAddr", "-n"],
            env_var="NAMESRV_ADDR",
            help="Name servers, host:port;host:port.",
        ),
    ] = limits.NAMESRV_ADDR
    timeout_s: Annotated[
        float,
        Parameter(name="--timeout", help="Seconds for each request.", validator=Number(gt=0)),
    ] = limits.REQUEST_TIMEOUT_S

    secret_file: Annotated[
        Path | None,
        Parameter(
            name="--secret-file",
            env_var="DLEDGER_SECRET_FILE",
            help="The cluster's secret: brokers want a proof of it for changes from afar.",
        ),
    ] = None

    user: Annotated[
        str | None,
        Parameter(
            name="--user",
            env_var="DLEDGER_USER",
            help="Sign as this user, with the password of --password-file or $DLEDGER_PASSWORD.",
        ),
    ] = None
    password_file: Annotated[
        Path | None,
        Parameter(name="--password-file", help="A file whose first line is the user's password."),
    ] = None

    tls: Annotated[
        str | None,
        Parameter(
            name="--tls",
            env_var="DLEDGER_TLS",
            help="Connect by TLS: the file of the authorities that sign the servers' "
            "certificates, or `system` for this machine's authorities.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        Parameter(
            name="--tls-cert",
            env_var="DLEDGER_TLS_CERT",
            help="A certificate of this tool's own, and its key, for servers that demand one.",
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Parameter(
            name="--tls-key",
            env_var="DLEDGER_TLS_KEY",
            help="The key, if it is in another file than the certificate.",
        ),
    ] = None

    def __post_init__(self) -> None:
        try:
            parse_addresses(self.namesrv)
        except BadInput as error:
            raise ConfigError(f"-n (or NAMESRV_ADDR): {error}") from error

    def secret(self) -> str | None:
        """The user's password from a file or the environment. It is never an argument, which others
        could see in process lists."""
        if self.user is None:
            return None
        return read_password(self.password_file, f"--user {self.user}")

    def any_secret(self) -> str | None:
        """The user's password; without a user the cluster's secret, if it was given."""
        if self.user is not None or self.secret_file is None:
            return self.secret()
        return read_secrets(self.secret_file)[0].decode()

    def encryption(self) -> Tls | None:
        """How to reach servers by TLS; None for plain text. Raises ConfigError."""
        if self.tls is None:
            if self.tls_cert is not None:
                raise ConfigError("--tls-cert needs --tls")
            return None
        return tls_named(self.tls, self.tls_cert, self.tls_key)

    def ask(self, call: Callable[[Admin], Awaitable[_T]]) -> _T:
        """The result of a call, from a session that lasts as long as the call."""

        async def session() -> _T:
            async with Admin(
                self.namesrv,
                timeout_s=self.timeout_s,
                secret_file=self.secret_file,
                user=self.user,
                secret=self.secret(),
                tls=self.encryption(),
            ) as admin:
                result = await call(admin)
                _left_out[:], _unasked[:] = admin.left_out, admin.unasked
                return result

        return anyio.run(session)

    def end(self) -> None:
        """End the process with a status that says so if a broker group could not be asked."""
        if _unasked:
            sys.exit(EXIT_PARTLY)


DEFAULTS = Common()
DEFAULT_OUTPUT = Output()
