"""The entry point of `mqadmin`: the list of commands, and the handling of their errors.

A command's module is imported when the command is called, so that no command waits for the imports
of others. All that is said of a command stands at its function: what it does is the docstring, its
options are the parameters. `docs/generate.py` makes the pages of the reference of both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError

from dledger.errors import ConfigError
from dledger.observe import one_line
from dledger.program.console import let_reader_leave
from dledger.program.cores import leave_no_core
from dledger.program.ending import BY_INPUT, sentence
from dledger.program.entering import EXIT_INTERRUPTED
from dledger.program.helping import FlowingHelp
from dledger.program.logs import configure_logging
from dledger.version import __version__

EXIT_FAILED = 1
EXIT_USAGE = 2
ASK_FOR_ALL: Sequence[Sequence[str]] = ([], ["--help"], ["-h"])
"""Command lines that are answered by the overview."""


def function_of(command: str) -> str:
    """The name of a command's function: update_topic for updateTopic."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", command).lower()


MODULES = {
    "brokers": ("clusterList", "brokerStatus"),
    "raft": ("raftStatus", "transferLeader"),
    "members": ("addNode", "removeNode"),
    "access.users": ("createUser", "updateUser", "deleteUser", "getUser", "listUser"),
    "access.rights": (
        *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl"),
        *("aclExplain", "aclSuggest"),
    ),
    "access.encryption": ("tls",),
    "access.audit": ("auditLog",),
    "topics": (
        *("topicList", "topicRoute", "topicStatus", "topicClusterList"),
        *("updateTopic", "deleteTopic"),
    ),
    "groups": (
        *("updateSubGroup", "deleteSubGroup", "setConsumeMode", "consumerProgress"),
        *("deadLetters", "redriveDeadLetters"),
    ),
    "clients": (
        *("consumerConnection", "producerConnection", "consumerStatus"),
        "resetOffsetByTime",
    ),
    "statistics": ("statsAll", "listRates", "stats"),
    "queries": ("queryMsgById", "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset"),
    "messages": ("sendMessage", "consumeMessage", "listScheduled", "printMsg"),
    "settings": (
        *("getBrokerConfig", "updateBrokerConfig", "getNamesrvConfig", "updateNamesrvConfig"),
        *("updateKvConfig", "deleteKvConfig", "wipeWritePerm", "addWritePerm"),
        *("cleanExpiredCQ", "cleanUnusedTopic"),
    ),
    "doctor": ("doctor", "bundle"),
    "replica": ("exportReplica", "verifyLog"),
}
"""The commands by module: each is a function, whose docstring is its help."""

COMMANDS = {
    name: f"mqclient.commands.{module}:{function_of(name)}"
    for module, names in MODULES.items()
    for name in names
}

app = App(
    name="mqadmin",
    help=(
        "Administer a RocketMQ cluster. `mqadmin COMMAND --help` explains a command.\n\n"
        "For example:\n\n"
        "    mqadmin clusterList -n 127.0.0.1:9876\n"
        "    mqadmin updateTopic --help"
    ),
    help_format="plaintext",
    help_formatter=FlowingHelp(),
    version=__version__,
    suppress_keyboard_interrupt=False,
)
for _name, _target in COMMANDS.items():
    app.command(_target, name=_name, version=__version__)


def load_all() -> None:
    """Import the module of each command: the overview says what each does."""
    for name in COMMANDS:
        _ = app[name]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status."""
    if arguments is None:
        leave_no_core()
    let_reader_leave()
    configure_logging("console", "warning")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:  # RocketMQ's way to ask: mqadmin help updateTopic
        given = [*given[1:], "--help"]
    if given in ASK_FOR_ALL:
        load_all()
    try:
        app(given, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        _fail(f"{_explain(error)} (--help shows the options)", EXIT_USAGE)
    except ConfigError as error:
        _fail(str(error), EXIT_USAGE)
    except (*BY_INPUT, ValueError) as error:
        _fail(sentence(error), EXIT_FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)


def _explain(error: CycloptsError) -> str:
    """The fault of the command line, in the names that `docs/reference/mqadmin.md` uses."""
    if error.argument is None:
        return str(error)
    command = " ".join(error.command_chain or ())
    names = sorted(error.argument.names, key=len)
    option = f"{names[0]} ({', '.join(names[1:])})" if names[1:] else names[0]
    if isinstance(error, MissingArgumentError):
        return f"{command} needs {option}"
    if command == "queryMsgByOffset" and "-o" in names:
        return f"{error} The queue offset is --offset here"
    return str(error)


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"mqadmin: {one_line(' '.join(message.split()))}\n")
    sys.exit(status)
