"""Messages and nodes in words, for people who read transcripts: one short line each.

Numbers are those that Raft is about, indexes and terms. What only serves the sending, such as
sequence numbers, is left out, so that equal words mean that nothing new was said.
"""

from __future__ import annotations

from dledger.raft.election.transfer import why_declined
from dledger.raft.membership.configuration import decode_members
from dledger.raft.messages import (
    Answer,
    Append,
    Confirm,
    Confirmed,
    Declined,
    Eligible,
    Formed,
    Given,
    Head,
    Introduction,
    Lacking,
    Learned,
    PeerMessage,
    Prevote,
    Prevoted,
    State,
    Vote,
    split_run,
)
from dledger.raft.roles import Role
from dledger.testing.scripted.node import ScriptedNode


def entries_of(message: Append | Given, first_index: int) -> str:
    """Which entries a message carries, and of which terms."""
    count = message.count
    if not count:
        return "no entry"
    copies = split_run(message.run, first_index, count, message.term)
    terms = sorted({copy.header.term for copy in copies})
    which = f"entry {first_index}"
    if count > 1:
        which = f"entries {first_index} to {first_index + count - 1}"
    return f"{which} of term {' and '.join(map(str, terms))}"


def _said_by_leader(message: PeerMessage) -> str | None:
    match message:
        case Append(_, committed, index, term):
            what = entries_of(message, index + 1)
            return f"{what}, after {index} of term {term}; committed {committed}"
        case Head():
            return f"begin with {message.first_index}; committed {message.commit_index}"
        case Given():
            what = entries_of(message, message.first_index)
            return f"{what}; committed {message.commit_index}"
        case State():
            return f"as of entry {message.index}, {message.total_bytes} bytes"
        case Eligible():
            return f"with entry {message.index}"
        case Confirm():
            return f"round {message.number}"
    return None


def _said_by_anybody(message: PeerMessage) -> str | None:
    match message:
        case Answer(_, next_index, reset):
            said = f"send from {next_index}" if reset else f"holds up to {next_index - 1}"
            return said + ", not to be counted" * isinstance(message, Learned)
        case Vote(_, index, term) | Prevote(_, index, term):
            wished = isinstance(message, Vote) and message.is_wished
            return f"log ends with {index} of term {term}{'; the leader wishes it' * wished}"
        case Prevoted():
            return "yes" if message.granted else "no"
        case Formed():
            return "no entry here" if message.fresh else "there are entries"
        case Introduction(_, index, term):
            said = ", ".join(decode_members(message.run))
            return f"entry {index} of term {term} says {said}"
        case Confirmed():
            return f"round {message.number}"
        case Lacking():
            return f"from entry {message.index}"
        case Declined():
            return why_declined(message.reason)
    return None


def tell(message: PeerMessage) -> str:
    """A line about a message: its kind, its term, and what it says."""
    head = f"{message.kind.name} term {message.term}"
    said = _said_by_leader(message) or _said_by_anybody(message)
    return head if said is None else f"{head}: {said}"


def facts_of(node: ScriptedNode) -> dict[str, str]:
    """A node's state in words, one phrase for each thing that may change."""
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
        "eligible": "is eligible" if node.engine.acknowledging.eligible else "is not eligible",
        "members": f"members {', '.join(members.voters)}"
        + (f"; learner {', '.join(members.learners)}" if members.learners else ""),
        "head": f"log begins with {log.first_index}",
        "end": f"log ends with {end}",
        "durable": "" if log.durable_index == log.last_index else f"durable {log.durable_index}",
        "commit": f"committed {core.commit_index}",
        "state": "lacks the state" if node.engine.base_state.is_missing else "",
        "serving": "serves" if node.engine.standing.serving else "",
    }
