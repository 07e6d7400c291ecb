"""The entry point of `mqadmin`: which commands there are, and what becomes of their errors.

A command's module is imported when it is called, so that a command starts in the time that it
needs itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from dledger.errors import ConfigError, DledgerError
from dledger.observe import configure_logging

EXIT_FAILED = 1
EXIT_USAGE = 2

_COMMANDS = {
    "clusterList": ("brokers:cluster_list", "Show every broker, who leads, how busy it is."),
    "brokerStatus": ("brokers:broker_status", "Show the figures that brokers report."),
    "raftStatus": ("raft:raft_status", "Show all members of each group: roles, logs, lag."),
    "transferLeader": ("raft:transfer_leader", "Hand a group's leadership to another member."),
    "verifyLog": ("replica:verify_log", "Check a replica's folder, without changing it."),
    "updateTopic": ("topics:update_topic", "Create a topic or change it."),
    "deleteTopic": ("topics:delete_topic", "Delete a topic and its messages."),
    "topicList": ("topics:topic_list", "List the topics."),
    "topicRoute": ("topics:topic_route", "Show which brokers serve a topic."),
    "topicStatus": ("topics:topic_status", "Show how many messages each queue holds."),
    "consumerProgress": ("groups:consumer_progress", "Show how far consumer groups are."),
    "sendMessage": ("messages:send_message", "Send one message."),
    "consumeMessage": ("messages:consume_message", "Print messages without consuming them."),
}

app = App(
    name="mqadmin",
    help="Administer a RocketMQ cluster. `mqadmin COMMAND --help` explains a command.",
    help_format="plaintext",
)
for _name, (_target, _help) in _COMMANDS.items():
    app.command(f"client.commands.{_target}", name=_name, help=_help)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:  # RocketMQ's way to ask: mqadmin help updateTopic
        given = [*given[1:], "--help"]
    configure_logging("console", "warning")
    try:
        app(given, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        _fail(f"{error} (--help shows the options)", EXIT_USAGE)
    except ConfigError as error:
        _fail(str(error), EXIT_USAGE)
    except DledgerError as error:
        _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_FAILED)


def _fail(message: str, status: int) -> None:
    one_line = " ".join(message.split())
    sys.stderr.write(f"mqadmin: {one_line}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
