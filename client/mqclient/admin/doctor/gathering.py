"""Asks the servers of a cluster for all that the checks look at.

Every server is asked by itself, followers and unregistered members too. Nothing is changed, and one
that does not answer keeps no other from being asked: it is noted. Each question is bounded in time,
names are bounded in number, and what is left out is named.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256

import anyio
import msgspec

from dledger.errors import DledgerError
from dledger.program.settings import parse_properties
from dledger.remoting.bodies import (
    BrokerData,
    KVTable,
    TopicConfigWrapper,
    TopicStats,
    decode_body,
)
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetTopicStatsInfoHeader,
    GroupInfoHeader,
    GroupInfoResponseHeader,
    decode_header,
)
from dledger.remoting.message import DLQ_PREFIX
from dledger.version import __version__
from dledger.world import steady_s, unix_ms
from mqclient import limits
from mqclient.admin.doctor.checks import findings
from mqclient.admin.doctor.facts import (
    BrokerFacts,
    DeadLetterFacts,
    Facts,
    Finding,
    GroupFacts,
    NamesrvFacts,
    Unasked,
    broker_groups,
)
from mqclient.admin.groups import consumers_on
from mqclient.admin.requests import Request, expect_success
from mqclient.admin.results import ServerHistory
from mqclient.admin.session import AdminSession, Part, away_in, run_for_each
from mqclient.admin.statistics import Statistics
from mqclient.connection.answers import cluster_in

_FAILURES = (DledgerError, OSError)
_ENCRYPTS = ("permissive", "enforcing")
_SECRET = ("secret", "password", "token", "accesskey")
_HIDDEN = "******"


class Doctor(Part):
    """Part `admin.doctor`: asks all servers about themselves, and finds faults."""

    async def findings(self) -> tuple[Finding, ...]:
        """The faults of the cluster, and the remedy for each."""
        return findings(await self.facts())

    async def facts(self, *, with_history: bool = False) -> Facts:
        """The answers of the servers about themselves, and the servers that did not answer; with
        their last hour."""
        self._requests.check_open()
        gathering = _Gathering(self._session)
        facts = await gathering.run()
        return await gathering.with_histories(facts) if with_history else facts


class _Gathering:
    """A round of questions to all servers of a cluster."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._requests = session.requests
        self._unasked: list[Unasked] = []
        self._away: dict[str, str] = {}
        self._groups: dict[str, BrokerData] = {}

    async def run(self) -> Facts:
        """Ask all servers, and collect their answers."""
        asked_ms = unix_ms()
        name_servers = await run_for_each(self._name_server, self._requests.name_servers)
        there = {(group, address) for group, address in self._registered()}
        brokers = dict(await self._brokers(there))
        named = {
            (broker.broker_name, address)
            for broker in brokers.values()
            if broker.info is not None
            for _, address in broker.info.members
        }
        brokers |= dict(await self._brokers(named - there))
        facts = Facts(asked_ms, __version__, name_servers, tuple(brokers.values()))
        dead_letters, differing = await self._of_leaders(facts)
        away = {name: its for name, its in self._away.items() if name not in self._groups}
        return msgspec.structs.replace(
            facts,
            brokers=await self._with_states(facts),
            away=away,
            dead_letters=tuple(dead_letters),
            differing=tuple(differing),
            unasked=tuple(self._unasked),
        )

    async def _answer(self, address: str, request: Request) -> Command:
        """The successful answer of one server. Raises DledgerError."""
        return expect_success(await self._requests.ask(address, request), request, address)

    async def with_histories(self, facts: Facts) -> Facts:
        """The facts, and what each server that answers has kept of its last hour."""
        histories: list[ServerHistory] = []
        statistics = Statistics(self._session)

        async def ask(address: str) -> None:
            histories.extend(await statistics.history(address))

        servers: list[NamesrvFacts | BrokerFacts] = [*facts.name_servers, *facts.brokers]
        for address in sorted(each.address for each in servers if each.problem is None):
            await self._try(f"the last hour of {address}", partial(ask, address))
        return msgspec.structs.replace(
            facts, histories=tuple(histories), unasked=tuple(self._unasked)
        )

    def _registered(self) -> Iterable[tuple[str, str]]:
        for name, group in self._groups.items():
            for address in group.broker_addrs.values():
                yield name, address

    async def _try(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """Ask something; if that fails, it is noted."""
        try:
            await call()
        except _FAILURES as error:
            self._unasked.append(Unasked(what, str(error)))

    async def _name_server(self, address: str) -> NamesrvFacts:
        try:
            answer = await self._answer(address, RequestCode.GET_BROKER_CLUSTER_INFO)
            info = cluster_in(answer)
        except _FAILURES as error:
            return NamesrvFacts(address, str(error))
        self._away |= away_in(info)
        brokers = {}
        for name, group in info.broker_addr_table.items():
            brokers[name] = dict(group.broker_addrs)
            known = self._groups.setdefault(name, BrokerData(group.cluster, name, {}))
            for broker_id, member in group.broker_addrs.items():
                if member not in known.broker_addrs.values():
                    free = max(known.broker_addrs, default=-1) + 1
                    taken = broker_id in known.broker_addrs
                    known.broker_addrs[free if taken else broker_id] = member
        config: dict[str, str] = {}

        async def ask_config() -> None:
            answer = await self._answer(address, RequestCode.GET_NAMESRV_CONFIG)
            config.update(parse_properties(answer.payload))

        await self._try(f"the config of the name server {address}", ask_config)
        ends_s = await self._certificate(address, config)
        return NamesrvFacts(address, None, brokers, ends_s)

    async def _brokers(self, members: Iterable[tuple[str, str]]) -> list[tuple[str, BrokerFacts]]:
        found = await run_for_each(lambda each: self._broker(*each), sorted(members))
        return [(broker.address, broker) for broker in found]

    async def _broker(self, name: str, address: str) -> BrokerFacts:
        facts = BrokerFacts(self._groups[name].cluster, name, address)
        try:
            answer = await self._requests.ask(address, GroupInfoHeader())
        except _FAILURES as error:
            return msgspec.structs.replace(facts, problem=str(error))
        if not answer.code:
            info = decode_header(GroupInfoResponseHeader, answer)
            facts = msgspec.structs.replace(facts, info=info)
        figures: dict[str, str] = {}
        config: dict[str, str] = {}
        clock: list[float] = []

        async def ask_figures() -> None:
            began_s, began_ms = steady_s(), unix_ms()
            answer = await self._answer(address, RequestCode.GET_BROKER_RUNTIME_INFO)
            took_ms = 1000 * (steady_s() - began_s)
            figures.update(decode_body(KVTable, answer.payload).table)
            if figures.get("clockTimestamp", "").isdecimal():
                ahead_ms = int(figures["clockTimestamp"]) - (began_ms + took_ms / 2)
                clock.extend((ahead_ms, took_ms / 2))

        async def ask_config() -> None:
            answer = await self._answer(address, RequestCode.GET_BROKER_CONFIG)
            config.update(without_secrets(parse_properties(answer.payload)))

        await self._try(f"the figures of {name} {address}", ask_figures)
        await self._try(f"the config of {name} {address}", ask_config)
        return msgspec.structs.replace(
            facts,
            figures=figures,
            config=config,
            clock_ahead_ms=clock[0] if clock else None,
            clock_unsure_ms=clock[1] if clock else 0.0,
            certificate_ends_s=await self._certificate(address, config),
        )

    async def _certificate(self, address: str, config: Mapping[str, str]) -> float | None:
        """When the certificate of a server ends; None if it has none, or none is shown."""
        if config.get("tls.server.mode") not in _ENCRYPTS:
            return None
        # Loaded here since it loads `ssl`, which a client without TLS does not need.
        from mqclient.admin.access.encryption import certificate_end  # noqa: PLC0415

        ends: list[float] = []

        async def ask() -> None:
            ends.append(await certificate_end(address, self._session.timeout_s))

        await self._try(f"the certificate of {address}", ask)
        return ends[0] if ends else None

    async def _with_states(self, facts: Facts) -> tuple[BrokerFacts, ...]:
        """The brokers with digests of their states, of the same entry in a group if possible."""
        found: list[BrokerFacts] = []
        for _, members in broker_groups(facts):
            answered = members
            for _ in range(limits.DOCTOR_ROUNDS_MAX):
                answered = list(await run_for_each(self._with_state, members))
                if len({each.tables_index for each in answered if each.tables}) <= 1:
                    break
                await anyio.sleep(limits.DOCTOR_ROUND_S)
            found += answered
        return tuple(found)

    async def _with_state(self, broker: BrokerFacts) -> BrokerFacts:
        if broker.info is None or "usersDigest" not in broker.figures:
            return broker
        try:
            before = await self._figures(broker.address)
            answer = await self._answer(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG)
            after = await self._figures(broker.address)
        except _FAILURES as error:
            self._unasked.append(Unasked(f"the state of {broker.name}", str(error)))
            return broker
        figures = {**broker.figures, "logDigests": after.get("logDigests", "")}
        index = after.get("appliedIndex", "")
        if before.get("appliedIndex") != index or not index.isdecimal():
            return msgspec.structs.replace(broker, figures=figures)
        topics = decode_body(TopicConfigWrapper, answer.payload).topic_config_table
        encoded = msgspec.json.encode([topics[name] for name in sorted(topics)])
        tables = {"topics": sha256(encoded).hexdigest(), "users": after.get("usersDigest", "")}
        return msgspec.structs.replace(
            broker, figures=figures, tables=tables, tables_index=int(index)
        )

    async def _figures(self, address: str) -> Mapping[str, str]:
        answer = await self._answer(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return decode_body(KVTable, answer.payload).table

    async def _of_leaders(self, facts: Facts) -> tuple[list[DeadLetterFacts], list[GroupFacts]]:
        """The facts that only leaders know: dead letters, and the subscriptions of groups."""
        letters: list[DeadLetterFacts] = []
        differing: list[GroupFacts] = []
        led = {
            each.broker_name
            for each in facts.brokers
            if each.problem is None and (each.info is None or each.info.role == "leader")
        }
        for name in sorted({each.broker_name for each in facts.brokers}):
            if name not in led:
                why = "the broker group has no leader"
                self._unasked.append(Unasked(f"dead letters and groups of {name}", why))
                continue

            ask = partial(self._of_leader, self._groups[name], letters, differing)
            await self._try(f"dead letters and groups of {name}", ask)
        return letters, differing

    async def _of_leader(
        self, broker: BrokerData, letters: list[DeadLetterFacts], differing: list[GroupFacts]
    ) -> None:
        requests, name = self._requests, broker.broker_name
        answer = await requests.ask_leader(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        topics = decode_body(TopicConfigWrapper, answer.payload).topic_config_table
        dead = self._first_of(sorted(each for each in topics if each.startswith(DLQ_PREFIX)), name)
        groups = self._first_of(sorted(await requests.group_configs(broker)), name)

        async def ask_letters(topic: str) -> None:
            answer = await requests.ask_leader(broker, GetTopicStatsInfoHeader(topic=topic))
            queues = decode_body(TopicStats, answer.payload).offset_table.values()
            messages = sum(queue.max_offset - queue.min_offset for queue in queues)
            last_ms = max((queue.last_update_timestamp for queue in queues), default=0)
            group = topic.removeprefix(DLQ_PREFIX)
            letters.append(DeadLetterFacts(group, name, messages, last_ms))

        async def ask_members(group: str) -> None:
            found = await consumers_on(self._session, broker, group)
            if found is not None and found.differing:
                differing.append(GroupFacts(group, name, found.differing))

        for call, names in ((ask_letters, dead), (ask_members, groups)):
            for at in range(0, len(names), limits.DOCTOR_AT_ONCE):
                await run_for_each(call, names[at : at + limits.DOCTOR_AT_ONCE])

    def _first_of(self, names: list[str], broker_name: str) -> list[str]:
        more = len(names) - limits.DOCTOR_NAMES_MAX
        if more > 0:
            why = f"only the first {limits.DOCTOR_NAMES_MAX} are"
            self._unasked.append(Unasked(f"{more} more groups of {broker_name}", why))
        return names[: limits.DOCTOR_NAMES_MAX]


def without_secrets(config: Mapping[str, str]) -> dict[str, str]:
    """A config to be passed on: values of keys that sound like secrets are hidden, names of files
    are not. Servers of ours hide theirs themselves; others may not."""
    return {
        key: _HIDDEN
        if value and not key.endswith("File") and any(each in key.lower() for each in _SECRET)
        else value
        for key, value in config.items()
    }
