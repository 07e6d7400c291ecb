"""Decides batches: one entry in the home group says which staged entries count.

The home group of a name is the one that knows it; of a new name, the first of the cluster by its
name. While a group is away that may know it, nobody can say. What was decided is ended by whoever
comes: the driver that decided, one that repeats the batch, or the groups themselves
(docs/explanation/spark-sink.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import anyio

from dledger.limits import STAGED_ENDED_TOGETHER_MAX
from dledger.observe import get_logger
from dledger.remoting.bodies import ClusterInfo, TopicRouteData
from dledger.remoting.bodies.staged import Places, Staged, decode_places, encode_places
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    DecisionOfHeader,
    DecisionOfResponseHeader,
    EndStagedHeader,
    Header,
    RegisterProducerHeader,
    RegisterProducerResponseHeader,
    WriteOnceHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.numbers import INT64_MAX
from dledger.tls.options import AskedTls
from mqclient import limits
from mqclient.admin.session import AdminSession, SessionClient, away_in, run_for_each
from mqclient.connection.credentials import Credentials
from mqclient.errors import BatchLost, HomeUnsure, NoLeader, ProducerFenced, Refused
from mqclient.signatures import checked

log = get_logger(__name__)


def home_of(
    name: str, decisions: Mapping[str, tuple[int, int]], away: Iterable[str], wanted: str | None
) -> str:
    """The group that decides under a name. `decisions` are its epoch and last batch in each group
    that is there. Raises HomeUnsure if a group may decide again what another one did."""
    decided = [(batch, group) for group, (_, batch) in decisions.items() if batch >= 0]
    if decided:
        found = max(decided)[1]
        if wanted not in (None, found):
            raise HomeUnsure(name, f"its batches are decided by {found}, and not by {wanted}")
        return found
    if wanted is not None:
        if wanted not in decisions:
            raise HomeUnsure(name, f"the broker group {wanted}, which is to decide, is not there")
        return wanted
    for group in sorted(away):
        raise HomeUnsure(name, f"the broker group {group} is away, and may have decided before")
    known = [group for group, (epoch, _) in decisions.items() if epoch]
    return min(known or decisions)


@checked
class BatchDecider(SessionClient):
    """Registers the name of a query, and decides its batches. Each step waits for groups that don't
    serve, up to `patience_s`."""

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        *,
        timeout_s: float = limits.REQUEST_TIMEOUT_S,
        patience_s: float = limits.BULK_TIMEOUT_S,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        credentials = Credentials.of(user, secret)
        super().__init__(AdminSession(namesrv_addr, timeout_s, credentials=credentials, tls=tls))
        self._patience_s = patience_s

    async def begin(self, name: str, instance: str, batch: int, home: str | None = None) -> Staged:
        """The name is this instance's from now on: for whom rows of a batch are staged. The broker
        group `home` decides, if it is given.

        Raises ProducerFenced if a newer instance has had it; HomeUnsure, NoLeader, Refused or
        RemotingError.
        """
        self.check_open()
        home = await self._home(name, home)
        header = RegisterProducerHeader(name, instance)
        answer = await self._ask(home, RequestCode.REGISTER_PRODUCER, header)
        if answer.code == ResponseCode.PRODUCER_FENCED:
            raise ProducerFenced(answer.remark or "", "", home, f"of producer {name!r}")
        self._granted(answer, f"the name {name!r}")
        return Staged(
            name, decode_header(RegisterProducerResponseHeader, answer).epoch, batch, home
        )

    async def commit(self, staged: Staged, places: Places, first_batch: int = 0) -> bool:
        """Decide a batch, and let what was decided become messages; returns when all are.

        False if it was decided before: then what that decision named is ended, and not `places`. A
        name that never decided must begin with `first_batch`. Raises ProducerFenced or BatchLost;
        NoLeader, Refused or RemotingError: then the same call may be made again.
        """
        self.check_open()
        await self._learn()
        decision, content = await self._decision(staged.name, staged.home)
        if decision.batch < 0 and staged.batch > first_batch:
            raise BatchLost(
                staged.name,
                staged.batch,
                f"broker group {staged.home} knows no earlier one of it. If this batch was never "
                f"stored, give firstBatch={staged.batch}",
            )
        is_new = decision.batch < staged.batch
        if is_new:
            is_new = await self._decide(staged, encode_places(places))
            if not is_new:
                decision, content = await self._decision(staged.name, staged.home)
        if not is_new:
            if decision.batch > staged.batch:
                return False  # that one was decided after all of this one had ended
            if not decision.is_kept:
                raise BatchLost(
                    staged.name,
                    staged.batch,
                    f"it is decided, and the log of {staged.home} has the decision no more, so "
                    "nobody can say whether all of it is there",
                )
            places = decode_places(content)
        await run_for_each(lambda group: self._publish(*group), places.items())
        return is_new

    async def close_name(self, staged: Staged) -> None:
        """No batch of this name comes again: brokers forget it. Raises as `commit`."""
        self.check_open()
        await self._learn()
        with suppress(ProducerFenced):  # it is closed, by a try whose answer was lost
            await self._decide(staged._replace(batch=INT64_MAX), b"")

    async def _home(self, name: str, wanted: str | None) -> str:
        """The home group of a name, as soon as enough groups are there to say which it is."""
        until_s = anyio.current_time() + self._patience_s
        while True:
            info: ClusterInfo | None = None
            try:
                info = await self._learn()
                return await self._home_in(info, name, wanted)
            except (HomeUnsure, NoLeader) as error:
                is_sure = info is not None and not away_in(info)
                if is_sure or anyio.current_time() >= until_s:
                    raise
                log.info("waiting for a home group", producer=name, reason=str(error))
            await anyio.sleep(limits.REFUSED_RETRY_S)

    async def _home_in(self, info: ClusterInfo, name: str, wanted: str | None) -> str:
        decisions: dict[str, tuple[int, int]] = {}
        for broker_name in info.broker_addr_table:
            answer, _ = await self._decision(name, broker_name)
            decisions[broker_name] = answer.epoch, answer.batch
        return home_of(name, decisions, away_in(info), wanted)

    async def _learn(self) -> ClusterInfo:
        """All broker groups; the members of those that are there are known from now on."""
        info = await self._requests.cluster_info()
        table = info.broker_addr_table
        if not table:
            raise NoLeader("of any name", (), 0.0)
        data = TopicRouteData(broker_datas=[*table.values()])
        self._requests.leaders.routes.learn_members(data)
        return info

    async def _decision(self, name: str, home: str) -> tuple[DecisionOfResponseHeader, bytes]:
        answer = await self._ask(home, RequestCode.DECISION_OF, DecisionOfHeader(name))
        self._granted(answer, f"what is decided for {name!r}")
        return decode_header(DecisionOfResponseHeader, answer), bytes(answer.payload)

    async def _decide(self, staged: Staged, content: bytes) -> bool:
        """Whether the batch is decided by this; False if it was before."""
        header = WriteOnceHeader(
            producer_name=staged.name,
            epoch=staged.epoch,
            stream=0,
            sequence=staged.batch,
            parts=[],
            group="",
            moves=[],
            batch=staged.batch,
            content_size=len(content),
        )
        answer = await self._ask(staged.home, RequestCode.WRITE_ONCE, header, content)
        if answer.code == ResponseCode.BATCH_DECIDED:
            return False
        if answer.code == ResponseCode.PRODUCER_FENCED:
            named = f"of producer {staged.name!r}"
            raise ProducerFenced(answer.remark or "", "", staged.home, named)
        self._granted(answer, f"batch {staged.batch} of {staged.name!r}")
        return True

    async def _publish(self, broker_name: str, places: Sequence[tuple[int, int]]) -> None:
        """End the staged entries of one group, in order."""
        for first in range(0, len(places), STAGED_ENDED_TOGETHER_MAX):
            (offset, position), *following = places[first : first + STAGED_ENDED_TOGETHER_MAX]
            header = EndStagedHeader(offset, position, following)
            answer = await self._ask(broker_name, RequestCode.END_STAGED, header)
            self._granted(answer, f"the end of staged entries from {offset} on {broker_name}")

    async def _ask(
        self, broker_name: str, code: RequestCode, header: Header, body: bytes = b""
    ) -> Command:
        """The answer of a group's leader, as soon as it has one. Each request may be repeated."""
        command = Command(code, encode_header(header), body)
        until_s = anyio.current_time() + self._patience_s
        return await self._answer(broker_name, command, until_s)

    @staticmethod
    def _granted(answer: Command, what: str) -> None:
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            reason = "it decides no batches: it is a broker of Apache RocketMQ, or an older one"
            raise Refused(what, "its leader", answer.code, reason)
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(what, "its leader", answer.code, answer.remark)
