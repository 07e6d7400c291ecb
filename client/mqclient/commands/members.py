"""addNode and removeNode: a group gets a member more, or one less, while it serves."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from mqclient import limits
from mqclient.commands.terminal.options import DEFAULTS, Common

Broker = Annotated[
    str,
    Parameter(
        name=["--broker", "-b", "--brokerName"],
        help="The group: its broker name, or a member's address.",
    ),
]
Node = Annotated[str, Parameter(name=["--node"], help="The node's dLegerSelfId, such as n3.")]
Within = Annotated[
    float,
    Parameter(
        name=["--within"],
        help="Seconds until this command waits no longer; the change goes on.",
        validator=Number(gt=0),
    ),
]


def add_node(
    *,
    broker: Broker,
    node: Node,
    peer: Annotated[
        str, Parameter(name=["--peer"], help="The node's address for members, host:port.")
    ],
    client: Annotated[str, Parameter(name=["--client"], help="host:port for clients.")],
    within: Within = limits.CATCH_UP_S,
    common: Common = DEFAULTS,
) -> None:
    """Add a node to a broker group while it serves, and wait until the node votes.

    Start the node first, with an empty store. Its dLegerPeers and groupClientAddrs name all members
    and the node itself. The node copies the log without being counted, and becomes a voter when it
    has caught up.

    For example:

        mqadmin addNode -b broker-a --node n3 --peer n3:40911 --client n3:10911
    """
    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            sys.stderr.write(line + "\n")

    change = common.ask(
        lambda admin: admin.members.add(
            broker, node, peer, client, within_s=within, on_progress=say
        )
    )
    common.say(
        "addNode",
        change,
        f"{node} votes in {change.broker_name} now, beside "
        f"{', '.join(member for member in change.members if member != node)}",
    )


def remove_node(
    *, broker: Broker, node: Node, within: Within = limits.CATCH_UP_S, common: Common = DEFAULTS
) -> None:
    """Remove a node from a broker group, whether the node runs or not.

    A leader hands over first. The command is refused if the remaining members could not go on
    without the node. Stop the node afterwards: it serves nobody any more.

    For example:

        mqadmin removeNode -b broker-a --node n0 -n 127.0.0.1:9876
    """
    change = common.ask(lambda admin: admin.members.remove(broker, node, within_s=within))
    members = ", ".join(change.members)
    common.say("removeNode", change, f"{node} is not a member any more; {members} are")
