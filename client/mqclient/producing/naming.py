"""A producer with a name: one instance of a program, which the next instance of it replaces.

The instance has an id of its own, by which it registers its name in each broker group that it
writes to. The group gives it an epoch, and refuses whoever had the name before. Registering is
repeated with the same id for as long as it takes. What one part of the instance has heard (its
producer, a consumer with transactions) holds for all.

What it writes has numbers, which grow within each of a few streams. A stream has one write under
way at a time: a batch that is being sent has one, and each consumer with transactions.
"""

from __future__ import annotations

import itertools
import threading
import uuid

import anyio

from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    RegisterProducerHeader,
    RegisterProducerResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.names import check_producer_name
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder
from mqclient.errors import BadMessage, ProducerFenced


class Named:
    """A name, and the instance that has it, from `begin` on. Its methods may be called in any
    thread."""

    def __init__(self, name: str) -> None:
        check_producer_name(name)
        self.name = name
        self.instance = ""
        #: By broker group: the epoch; why nothing can be written any more.
        self.epochs: dict[str, int] = {}
        self.fenced: dict[str, str] = {}
        self._sequences = itertools.count(1)
        self._streams: dict[str, int] = {}
        self._choosing = threading.Lock()

    def begin(self) -> None:
        """Make an instance of the program: where its producer is opened, after any fork."""
        self.instance = uuid.uuid4().hex

    def next_sequence(self) -> int:
        """The number of the next write, in whichever stream."""
        return next(self._sequences)

    def stream_of(self, client_id: str) -> int:
        """The stream of a consumer's transactions. Raises BadMessage if there are too many."""
        with self._choosing:
            if client_id not in self._streams:
                first = limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
                every = range(first, limits.STREAMS_PER_PRODUCER_MAX)
                free = [stream for stream in every if stream not in self._streams.values()]
                if not free:
                    raise BadMessage(
                        f"producer {self.name!r} writes for {len(self._streams)} consumers "
                        "already: give this one a producer of its own, with another name"
                    )
                self._streams[client_id] = free[0]
            return self._streams[client_id]

    def leave(self, client_id: str) -> None:
        """A consumer is closed: another one may have its stream."""
        with self._choosing:
            self._streams.pop(client_id, None)


class Claim:
    """A name in one broker group, as one session sees to it."""

    def __init__(self, named: Named, broker_name: str, finder: LeaderFinder) -> None:
        self.named = named
        self._broker_name = broker_name
        self._finder = finder
        self._registering = anyio.Lock()
        self._free: list[int] = [*range(limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX)]

    @property
    def epoch(self) -> int | None:
        """The instance's epoch, once its name is registered."""
        return self.named.epochs.get(self._broker_name)

    @property
    def fenced(self) -> str | None:
        """Why nothing can be written any more, if so."""
        return self.named.fenced.get(self._broker_name)

    async def register(self, topic: str, timeout_s: float) -> int:
        """The instance's epoch in this broker group, asked for if it is not known yet. `topic` is
        one whose route names the group.

        Raises ProducerFenced; Refused, or another ClientError or RemotingError, if the group does
        not give one.
        """
        async with self._registering:
            if self.fenced is not None:
                raise self.fenced_error(topic)
            epoch = self.epoch
            if epoch is None:
                named = self.named
                header = RegisterProducerHeader(named.name, named.instance)
                command = Command(RequestCode.REGISTER_PRODUCER, encode_header(header))
                what = f"the name of producer {named.name!r}"
                answer = await self._finder.granted(
                    what,
                    self._broker_name,
                    topic,
                    command,
                    timeout_s,
                    ResponseCode.PRODUCER_FENCED,
                )
                if self.heard(answer.code, answer.remark):
                    raise self.fenced_error(topic)
                epoch = decode_header(RegisterProducerResponseHeader, answer).epoch
                self.named.epochs[self._broker_name] = epoch
            return epoch

    def fenced_error(self, topic: str) -> ProducerFenced:
        """The error of a fenced write that was certainly not stored."""
        named = f"of producer {self.named.name!r}"
        return ProducerFenced(self.fenced or "", topic, self._broker_name, named)

    def take_stream(self) -> int:
        """A stream that no batch has; as many batches are under way as there are."""
        return self._free.pop()

    def give_back(self, stream: int) -> None:
        """Give back the stream of a batch that is done."""
        if stream not in self._free:
            self._free.append(stream)

    def heard(self, code: int, remark: str | None) -> bool:
        """Whether an answer says that another instance has the name; then nothing more is sent."""
        if code != ResponseCode.PRODUCER_FENCED:
            return False
        self.named.fenced[self._broker_name] = remark or "another instance has the name"
        return True
