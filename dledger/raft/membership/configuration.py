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

What is added is checked strictly (`check_member`). What a log holds is not: an entry that an
earlier version, with weaker rules, has committed means the same on every node, so it is read, and
the member that it names can be removed. A node that can't dial it says so, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from dledger.addresses import check_port, check_reachable, parse_address
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
        """Host and peer port of the member, for connections between members."""
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
    """Raise BadInput for a member that may not be added, naming the field."""
    _check_readable(node_id, member)
    check_reachable(member.host, f"host of {node_id}:")
    if member.service:
        host, _ = parse_address(member.service)
        check_reachable(host, f"service address of {node_id}:")


def _check_readable(node_id: str, member: Member) -> None:
    """Raise BadInput for a member that no version has ever added, naming the field."""
    check_node_id(node_id)
    for name, text in (("host", member.host), ("service address", member.service)):
        size = _utf8_bytes(text)
        if size > HOST_BYTES_MAX or size < (name == "host"):
            raise BadInput(f"{name} {text[:80]!r} of {node_id} is not 1 to {HOST_BYTES_MAX} bytes")
    check_port(member.port, f"peer port of {node_id}:")


def check_node_id(node_id: str) -> None:
    """Raise BadInput for an id that is empty, too long, or can't be shown in a line."""
    if not 0 < _utf8_bytes(node_id) <= NODE_ID_BYTES_MAX or not node_id.isprintable():
        raise BadInput(f"node id {node_id[:140]!r} is not 1 to {NODE_ID_BYTES_MAX} bytes of text")


def _utf8_bytes(text: str) -> int:
    """The length of a text in UTF-8; -1 for what has none, such as half a surrogate pair."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


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
            _check_readable(node_id, member)
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
