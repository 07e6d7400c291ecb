"""Every error that the foundation raises, as one tree. Pure.

::

    DledgerError
    +-- BadInput                 the caller's bytes, header, config or argument is malformed
    |   +-- FrameError           a frame that can't be decoded: the connection is closed
    |   +-- HeaderError          a typed header lacks a field or has a bad one: answered
    |   +-- RecordError          bytes that are no message record
    |   +-- ConfigError          a config file or command line
    +-- StorageError             the disk or the bytes on it
    |   +-- CorruptLog           durable entries can't be read: never cut silently
    |   |   +-- DamagedLog       a leader can repair it (log/recovery/repair.py)
    |   |   +-- Rot              found in a segment that no start reads: the next one must
    |   +-- NoSpace              the disk is full: nothing was taken, and nothing is wrong
    |   +-- Fenced               an earlier write or fsync failed: this node takes no more
    |   +-- WrittenByNewer       an entry that a newer version wrote: the disk is fine
    +-- AppendError              an append to the replicated log did not succeed
    |   +-- NotLeader            definitely not appended: ask `leader`
    |   +-- Busy                 definitely not appended: a bound was reached
    |   +-- TooLarge             definitely not appended: the entry is above a limit
    |   +-- OutcomeUnknown       appended or not: leadership was lost on the way
    +-- LedgerClosed             what was waited for can't happen any more
    +-- NotConfirmed             nothing was read: no majority said that the leader still leads
    +-- PeerPortClosed           the port for other members is taken, or is not this machine's
    +-- TransferFailed           the leader did not change
    +-- MembershipError          the group's members did not change
    |   +-- ChangePending        another change is not committed yet, or must come first
    |   +-- UnknownMember        there is no member of that name
    |   +-- WouldLoseMajority    the group could not go on without that member
    +-- RemotingError            a request to a server did not get an answer
        +-- ConnectFailed        definitely not sent
        +-- ConnectionLost       outcome unknown
        +-- RequestTimeout       outcome unknown

`definite` says whether the operation certainly had no effect.
"""

from __future__ import annotations

from collections.abc import Iterator

from dledger.limits import NAME_SHOWN_CHARACTERS_MAX, REMARK_CHARACTERS_MAX


def shown(value: str | bytes) -> str:
    """A text from outside as an error quotes it: no more than its beginning, and its length."""
    if len(value) <= NAME_SHOWN_CHARACTERS_MAX:
        return repr(value)
    return f"{value[:NAME_SHOWN_CHARACTERS_MAX]!r}... ({len(value)} in all)"


def shortened(text: str) -> str:
    """An error's text as it is answered and logged: it may quote what a client sent."""
    if len(text) <= REMARK_CHARACTERS_MAX:
        return text
    return f"{text[:REMARK_CHARACTERS_MAX]}... ({len(text)} characters)"


class DledgerError(Exception):
    """Root of all errors of dledger."""

    definite: bool = True


class BadInput(DledgerError):
    """Malformed bytes or values from outside; the message names the field."""


class FrameError(BadInput):
    """A frame that can't be decoded. Close the connection that it came from."""


class HeaderError(BadInput):
    """A typed header lacks a required field or holds a value of the wrong kind."""


class RecordError(BadInput):
    """Bytes that are not a well-formed message record."""


class ConfigError(BadInput):
    """A config file or a command line that can't be used; the message names the key."""


class StorageError(DledgerError):
    """The disk failed, or what it holds can't be trusted."""


class CorruptLog(StorageError):
    """Durable entries can't be read. Nothing is cut; the operator or the leader must repair
    them."""


class Rot(CorruptLog):
    """An entry of a sealed segment turns out to be damaged; the next start must read it again."""

    def __init__(self, what: str, base_position: int) -> None:
        super().__init__(what)
        self.base_position = base_position


class NoSpace(StorageError):
    """There is no room for another entry. Nothing was written; the log goes on when there is
    room."""


class Fenced(StorageError):
    """An earlier write or fsync failed, so this node no longer vouches for its disk."""


class WrittenByNewer(StorageError):
    """The log holds something that only a newer version knows. `what` begins the sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the log holds {what} that this version does not know: it was written by a newer one; "
            "upgrade this node"
        )


class PeerPortClosed(DledgerError):
    """The port on which other members would reach this node can't be opened."""


class AppendError(DledgerError):
    """An append to the replicated log did not succeed."""


class NotLeader(AppendError):
    """Definitely not appended: this node does not lead. `leader` is the node to ask, if known."""

    def __init__(self, leader: str | None) -> None:
        super().__init__(f"this node does not lead; the leader is {leader or 'not known'}")
        self.leader = leader


class Busy(AppendError):
    """The request was definitely not appended: a bound was reached. Try again after `retry_after_s`
    seconds."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(f"{reason}; retry after {retry_after_s:.3f} s")
        self.retry_after_s = retry_after_s


class TooLarge(AppendError):
    """Definitely not appended: the entry is larger than `limits.ENTRY_BYTES_MAX`."""


class OutcomeUnknown(AppendError):
    """The entry may or may not be committed later: leadership was lost while it was on its way."""

    definite = False


class LedgerClosed(DledgerError):
    """The block of `open_ledger` was left, so what was waited for can't happen any more."""


class NotConfirmed(DledgerError):
    """Nothing was read: no majority has confirmed in time that this node still leads.

    A read has no effect, so this is definite. Ask again: this node, or a new leader.
    """


class TransferFailed(DledgerError):
    """Leadership was not handed over and stays where it is; the message says why."""


class MembershipError(DledgerError):
    """The members of a group were not changed; the message says why."""


class ChangePending(MembershipError):
    """Another change is not committed yet, or must come first. Try again after that."""


class UnknownMember(MembershipError):
    """There is no member of that name."""


class WouldLoseMajority(MembershipError):
    """The remaining members could not elect or commit, or would have no second copy."""


class RemotingError(DledgerError):
    """A request to a server did not get an answer."""


class ConnectFailed(RemotingError):
    """There is no connection, or it broke before anything of the request was sent."""


class ConnectionLost(RemotingError):
    """The connection broke after the request was handed to it."""

    definite = False


class RequestTimeout(RemotingError):
    """No answer came within the caller's deadline."""

    definite = False


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in an exception group, as nurseries raise it; of another error, itself."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from leaves(part)
