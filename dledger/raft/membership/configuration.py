"""The members of a group: its configuration, how it may change, and its bytes. Pure.

A configuration names the voters and the learners. Voters elect, and their copies are counted.
Learners get entries, and become voters once they hold the log. A configuration is an entry of the
log, with a kind of its own. A node acts by it as soon as its log holds it, committed or not. Two
leaders can be elected in one term only by two majorities that share no node, so (Ongaro's
dissertation, 4.1):

- a change adds or removes one voter: any majority of the old configuration and any of the new
  share a node;
- a leader makes no change while an earlier one is not committed: else two leaders could each change
  the same configuration in one step, and their majorities might share no node;
- a leader makes no change before an entry of its own term is committed: until then the change of an
  earlier leader, which this one does not hold, may still win (the bug of the single-server change,
  raft-dev 2015);
- a node whose log is cut goes back to the last configuration that its log still holds.

Before any change a group has the members that its config files name: the configuration of index 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import BadInput, CorruptLog, FrameError
from dledger.limits import MEMBERS_MAX, NODE_ID_BYTES_MAX
from dledger.raft.limits import HOST_BYTES_MAX

_FILE_MAGIC: Final = b"DLGM"
_CRC_BYTES: Final = 4


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A member: its peer port's address, and whether it votes.

    `service` is the address where it serves the group's users: a broker's address for clients.
    """

    host: str
    port: int
    votes: bool = True
    service: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """(host, peer port)."""
        return self.host, self.port


class Configuration(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The members from the entry `index` of `term` on, by node id."""

    members: dict[str, Member]
    index: int = 0
    term: int = 0

    @cached_property
    def voters(self) -> tuple[str, ...]:
        """The ids of those that elect and are counted, in order."""
        return tuple(sorted(node_id for node_id, member in self.members.items() if member.votes))

    @cached_property
    def learners(self) -> tuple[str, ...]:
        """The ids of those that get entries and are not counted, in order."""
        return tuple(sorted({*self.members} - {*self.voters}))

    def is_majority(self, node_ids: Iterable[str]) -> bool:
        """Whether more than half of the voters are among these."""
        voters = self.voters
        return 2 * len({*voters} & {*node_ids}) > len(voters)

    def votes(self, node_id: str) -> bool:
        """Whether a node is a voter."""
        member = self.members.get(node_id)
        return member is not None and member.votes

    # -- changes: each of one member -------------------------------------------------------

    def with_learner(self, node_id: str, member: Member) -> dict[str, Member]:
        """The members after one is added that does not vote yet. Raises BadInput."""
        check_member(node_id, member)
        if len(self.members) >= MEMBERS_MAX:
            raise BadInput(f"the group has {len(self.members)} members, the limit: remove one")
        learner = msgspec.structs.replace(member, votes=False)
        return {**self.members, node_id: learner}

    def with_voter(self, node_id: str) -> dict[str, Member]:
        """The members after a learner is made a voter."""
        return {**self.members, node_id: msgspec.structs.replace(self.members[node_id], votes=True)}

    def without(self, node_id: str) -> dict[str, Member]:
        """The members after one is removed."""
        return {other: member for other, member in self.members.items() if other != node_id}


def initial(
    peers: Mapping[str, tuple[str, int]], services: Mapping[str, str] | None = None
) -> dict[str, Member]:
    """The members that a config file describes: all of them vote."""
    services = services or {}
    return {
        node_id: Member(host, port, service=services.get(node_id, ""))
        for node_id, (host, port) in peers.items()
    }


def check_member(node_id: str, member: Member) -> None:
    """Raise BadInput for a member that can't be one, naming the field."""
    if not 0 < len(node_id.encode()) <= NODE_ID_BYTES_MAX or not node_id.isprintable():
        raise BadInput(f"node id {node_id[:140]!r} is not 1 to {NODE_ID_BYTES_MAX} bytes of text")
    for name, text in (("host", member.host), ("service address", member.service)):
        if len(text.encode()) > HOST_BYTES_MAX or (name == "host" and not text):
            raise BadInput(f"{name} {text[:80]!r} of {node_id} is not 1 to {HOST_BYTES_MAX} bytes")
    if not 0 < member.port < 1 << 16:
        raise BadInput(f"peer port {member.port} of {node_id} is not within 1 to 65535")


def encode_members(members: Mapping[str, Member]) -> bytes:
    """The body of a configuration's entry: a msgpack map, node id to [host, port, votes, service].

    Index and term are the entry's own.
    """
    return msgspec.msgpack.encode(dict(sorted(members.items())))


def decode_members(body: Buffer) -> dict[str, Member]:
    """The members in an entry's body. Raises FrameError naming what is wrong."""
    try:
        members = msgspec.msgpack.decode(body, type=dict[str, Member])
        for node_id, member in members.items():
            check_member(node_id, member)
    except (msgspec.MsgspecError, UnicodeError, BadInput) as error:
        raise FrameError(f"a configuration can't be read: {error}") from error
    if not any(member.votes for member in members.values()) or len(members) > MEMBERS_MAX:
        raise FrameError(
            f"a configuration has {len(members)} members: at least one must vote, and at "
            f"most {MEMBERS_MAX} are allowed"
        )
    return members


def encode_file(configurations: Collection[Configuration]) -> bytes:
    """The file `members`: magic `DLGM`, CRC-32 of the rest, a msgpack array of configurations."""
    payload = msgspec.msgpack.encode(list(configurations))
    return _FILE_MAGIC + crc32(payload).to_bytes(_CRC_BYTES, "big") + payload


def decode_file(raw: bytes) -> list[Configuration]:
    """The configurations in the file, the oldest first; none if there is no file.

    Raises CorruptLog: a node that does not know its group could count the wrong majority.
    """
    if not raw:
        return []
    start = len(_FILE_MAGIC) + _CRC_BYTES
    payload = raw[start:]
    if raw[:start] != _FILE_MAGIC + crc32(payload).to_bytes(_CRC_BYTES, "big"):
        raise CorruptLog("the file `members` does not match its checksum")
    return msgspec.msgpack.decode(payload, type=list[Configuration])
