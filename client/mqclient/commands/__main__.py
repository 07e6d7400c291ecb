"""The entry point of `mqadmin`: the list of commands, and the handling of their errors.

A command's module is imported when the command is called, so that no command waits for the imports
of others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError

from dledger.errors import ConfigError
from dledger.observe import one_line
from dledger.program.console import let_reader_leave
from dledger.program.ending import BY_INPUT, sentence
from dledger.program.entering import EXIT_INTERRUPTED
from dledger.program.logs import configure_logging
from dledger.version import __version__

EXIT_FAILED = 1
EXIT_USAGE = 2

COMMANDS = {
    "clusterList": ("brokers:cluster_list", "Show every broker, who leads, how busy it is."),
    "brokerStatus": ("brokers:broker_status", "Show the figures that brokers report."),
    "raftStatus": ("raft:raft_status", "Show all members of each group: roles, logs, lag."),
    "transferLeader": ("raft:transfer_leader", "Hand a group's leadership to another member."),
    "addNode": ("members:add_node", "Add a node to a group; done when it votes."),
    "removeNode": ("members:remove_node", "Remove a node from a group."),
    "createUser": ("access.users:create_user", "Make a user."),
    "updateUser": ("access.users:update_user", "Change a user."),
    "deleteUser": ("access.users:delete_user", "Remove a user."),
    "getUser": ("access.users:get_user", "Show a user."),
    "listUser": ("access.users:list_user", "List the users."),
    "createAcl": ("access.rights:create_acl", "Allow a user something, or deny it."),
    "updateAcl": (
        "access.rights:update_acl",
        "Do the same: entries of equal resources are replaced.",
    ),
    "deleteAcl": ("access.rights:delete_acl", "Remove what a user may do."),
    "getAcl": ("access.rights:get_acl", "Show what a user may do."),
    "listAcl": ("access.rights:list_acl", "List what users may do."),
    "aclExplain": ("access.rights:acl_explain", "Say whether a user may do something, and why."),
    "aclSuggest": ("access.rights:acl_suggest", "Suggest policies for what was observed."),
    "tls": ("access.encryption:tls", "Check how a port is encrypted: tls check HOST:PORT."),
    "topicList": ("topics:topic_list", "List the topics."),
    "topicRoute": ("topics:topic_route", "Show which brokers serve a topic."),
    "topicStatus": ("topics:topic_status", "Show how many messages each queue holds."),
    "topicClusterList": ("topics:topic_cluster_list", "List the clusters that serve a topic."),
    "updateTopic": ("topics:update_topic", "Create a topic or change it."),
    "deleteTopic": ("topics:delete_topic", "Delete a topic and its messages."),
    "updateSubGroup": ("groups:update_sub_group", "Create a consumer group or change it."),
    "deleteSubGroup": ("groups:delete_sub_group", "Delete a consumer group."),
    "setConsumeMode": ("groups:set_consume_mode", "Have a group pull a topic, or pop it."),
    "consumerProgress": ("groups:consumer_progress", "Show how far consumer groups are."),
    "deadLetters": ("groups:dead_letters", "List the messages that a group gave up."),
    "redriveDeadLetters": ("groups:redrive_dead_letters", "Send them to their topics again."),
    "consumerConnection": ("clients:consumer_connection", "Show who consumes for a group."),
    "producerConnection": ("clients:producer_connection", "Show who produces for a group."),
    "consumerStatus": ("clients:consumer_status", "Show what consumers say of themselves."),
    "resetOffsetByTime": ("clients:reset_offset_by_time", "Have a group go on at a time."),
    "statsAll": ("statistics:stats_all", "Show what goes into topics and out to groups."),
    "listRates": ("statistics:list_rates", "Show the rates set for topics and groups."),
    "queryMsgById": ("queries:query_msg_by_id", "Show the message with an id."),
    "queryMsgByKey": ("queries:query_msg_by_key", "Show the messages that carry a key."),
    "queryMsgByUniqueKey": ("queries:query_msg_by_unique_key", "Show a message by its own key."),
    "queryMsgByOffset": ("queries:query_msg_by_offset", "Show the message at a queue offset."),
    "sendMessage": ("messages:send_message", "Send one message."),
    "consumeMessage": ("messages:consume_message", "Print messages without consuming them."),
    "listScheduled": ("messages:list_scheduled", "Show which delayed messages arrive next."),
    "printMsg": ("messages:print_msg", "Print messages of a time and tag."),
    "getBrokerConfig": ("settings:get_broker_config", "Show the configs of brokers."),
    "updateBrokerConfig": ("settings:update_broker_config", "Change a config key of brokers."),
    "getNamesrvConfig": ("settings:get_namesrv_config", "Show the configs of name servers."),
    "updateNamesrvConfig": ("settings:update_namesrv_config", "Change one of their config keys."),
    "updateKvConfig": ("settings:update_kv_config", "Set a key-value entry of name servers."),
    "deleteKvConfig": ("settings:delete_kv_config", "Remove a key-value entry."),
    "wipeWritePerm": ("settings:wipe_write_perm", "Keep producers away from a broker group."),
    "addWritePerm": ("settings:add_write_perm", "Let producers write to it again."),
    "cleanExpiredCQ": ("settings:clean_expired_cq", "Remove consume queues without messages."),
    "cleanUnusedTopic": ("settings:clean_unused_topic", "Remove what deleted topics left."),
    "exportReplica": ("replica:export_replica", "Copy replicas while they serve, to audit them."),
    "verifyLog": ("replica:verify_log", "Check a replica's folder, without changing it."),
}

app = App(
    name="mqadmin",
    help="Administer a RocketMQ cluster. `mqadmin COMMAND --help` explains a command.",
    help_format="plaintext",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
for _name, (_target, _help) in COMMANDS.items():
    app.command(f"mqclient.commands.{_target}", name=_name, help=_help, version=__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status."""
    let_reader_leave()
    configure_logging("console", "warning")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:  # RocketMQ's way to ask: mqadmin help updateTopic
        given = [*given[1:], "--help"]
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
    """What is wrong with the command line, in the names that `docs/reference/mqadmin.md` uses."""
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


if __name__ == "__main__":
    main()
