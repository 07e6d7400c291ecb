"""Messages and nodes in words, for people who read transcripts: one short line each.

Numbers are those that Raft is about, indexes and terms. What only serves the sending, such as
sequence numbers, is left out, so that equal words mean that nothing new was said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dledger.raft.library.messages import PeerKind, PeerMessage, split_run
from dledger.raft.membership.configuration import decode_members
from dledger.raft.roles import Role
from dledger.testing.scripted.node import ScriptedNode


def entries_of(message: PeerMessage, first_index: int, count: int) -> str:
    """Which entries a message carries, and of which terms."""
    if not count:
        return "no entry"
    copies = split_run(message.run, first_index, count, message.term)
    terms = sorted({copy.header.term for copy in copies})
    which = f"entry {first_index}"
    if count > 1:
        which = f"entries {first_index} to {first_index + count - 1}"
    return f"{which} of term {' and '.join(map(str, terms))}"


def _append(message: PeerMessage) -> str:
    commit_index, index, term, _, count = message.fields
    what = entries_of(message, index + 1, count)
    return f"{what}, after {index} of term {term}; committed {commit_index}"


def _ack(message: PeerMessage) -> str:
    next_index, reset, _, _ = message.fields
    said = f"send from {next_index}" if reset else f"holds up to {next_index - 1}"
    return said + (", not to be counted" if message.kind is PeerKind.LEARNED else "")


def _vote(message: PeerMessage) -> str:
    index, term, *wished = message.fields
    return f"log ends with {index} of term {term}{'; the leader wishes it' * any(wished)}"


def _given(message: PeerMessage) -> str:
    first_index, _, commit_index, count = message.fields
    return f"{entries_of(message, first_index, count)}; committed {commit_index}"


def _members(message: PeerMessage) -> str:
    index, term = message.fields
    return f"entry {index} of term {term} says {', '.join(decode_members(message.run))}"


_SAID: Final[dict[PeerKind, Callable[[PeerMessage], str]]] = {
    PeerKind.APPEND: _append,
    PeerKind.ACK: _ack,
    PeerKind.LEARNED: _ack,
    PeerKind.VOTE: _vote,
    PeerKind.PREVOTE: _vote,
    PeerKind.GIVEN: _given,
    PeerKind.CONFIGURATION: _members,
    PeerKind.PREVOTED: lambda message: "yes" if message.fields[0] else "no",
    PeerKind.FORMED: lambda message: "no entry here" if message.fields[0] else "there are entries",
    PeerKind.SEATED: lambda message: f"with entry {message.fields[0]}",
    PeerKind.HEAD: lambda message: f"begin with {message.fields[1]}; committed {message.fields[0]}",
    PeerKind.STATE: lambda message: f"as of entry {message.fields[0]}, {message.fields[1]} bytes",
    PeerKind.CONFIRM: lambda message: f"round {message.fields[0]}",
    PeerKind.CONFIRMED: lambda message: f"round {message.fields[0]}",
    PeerKind.LACKING: lambda message: f"from entry {message.fields[0]}",
}


def tell(message: PeerMessage) -> str:
    """A message in words."""
    head = f"{message.kind.name} term {message.term}"
    said = _SAID.get(message.kind)
    return head if said is None else f"{head}: {said(message)}"


def facts_of(node: ScriptedNode) -> dict[str, str]:
    """What a node thinks, a phrase for each thing that may change."""
    core, log, members = node.engine.core, node.log, node.engine.members.current
    role = {
        Role.LEADER: f"leads term {core.term}",
        Role.CANDIDATE: f"stands for term {core.term}",
        Role.FOLLOWER: f"follows {core.leader_id or 'nobody'} in term {core.term}",
    }[core.role]
    last = log.last
    end = f"{last.index} of term {last.term}" if last is not None else "nothing"
    return {
        "role": role,
        "seat": "has a seat" if node.engine.transport.seated else "has no seat",
        "members": f"members {', '.join(members.voters)}"
        + (f"; learner {', '.join(members.learners)}" if members.learners else ""),
        "head": f"log begins with {log.first_index}",
        "end": f"log ends with {end}",
        "durable": "" if log.durable_index == log.last_index else f"durable {log.durable_index}",
        "commit": f"committed {core.commit_index}",
        "state": "lacks the state" if node.engine.footing.is_missing else "",
        "serving": "serves" if node.engine.standing.serving else "",
    }
