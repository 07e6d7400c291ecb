"""Traffic into topics and out to groups, as counted by brokers, and the rates set for it."""

from __future__ import annotations

from dledger.errors import BadInput
from dledger.remoting.attributes import consume_rate, send_rate
from dledger.remoting.bodies import (
    BrokerData,
    BrokerStatsData,
    BrokerStatsItem,
    HistoryBody,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import (
    ViewBrokerStatsDataHeader,
    ViewHistoryHeader,
    ViewHistoryResponseHeader,
    decode_header,
)
from mqclient import limits
from mqclient.admin.groups import Groups, progress_of
from mqclient.admin.requests import expect_success
from mqclient.admin.results import ServerHistory, SetRate, TopicTraffic
from mqclient.admin.session import Part, ask_each, run_for_each
from mqclient.admin.topics import Topics

_NOTHING = BrokerStatsItem()


class Statistics(Part):
    """Part `admin.statistics`: traffic of topics and groups, their rates, and servers' last
    hour."""

    async def traffic(
        self, topic: str | None = None, *, partly: bool = False
    ) -> tuple[TopicTraffic, ...]:
        """The traffic in and out of one topic, or of all users' topics: one row for each group that
        reads it.

        A topic that no group reads has one row with an empty group. A broker group that can't be
        asked, for example one without a leader, raises its error. With `partly` the others are
        shown, and `left_out` names it; a topic of which it has all is left out, too.
        """
        topics = [info.topic for info in await Topics(self._session).list() if info.kind == "user"]
        asked, unasked = await self._that_can_be_asked(partly)
        found = await run_for_each(
            lambda name: self._traffic_of(name, asked), [topic] if topic is not None else topics
        )
        self._session.note_unasked(unasked)
        return tuple(row for rows in found for row in rows)

    async def _that_can_be_asked(self, partly: bool) -> tuple[set[str], dict[str, str]]:
        """The names of broker groups with a leader, and why not of the others; of all if not
        `partly`. Each is asked once, so that nobody waits for each question to one that is away."""
        groups = await self._session.broker_groups()
        if not partly:
            return {group.broker_name for group in groups}, {}

        async def ask(group: BrokerData) -> str:
            await self._requests.ask_leader(group, RequestCode.GET_BROKER_RUNTIME_INFO)
            return group.broker_name

        found, unasked = await ask_each(ask, groups)
        return set(found), unasked

    async def _traffic_of(self, topic: str, asked: set[str]) -> list[TopicTraffic]:
        route = await self._session.route(topic)
        brokers = [each for each in route.broker_datas if each.broker_name in asked]
        if not brokers:
            return []
        came_in = await self._figure(brokers, "TOPIC_PUT_NUMS", topic)
        rows = []
        for group in await Groups(self._session).of_topic(topic, brokers) or ("",):
            went_out, lag = (_NOTHING, _NOTHING), 0
            if group:
                went_out = await self._figure(brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
                lag = (await progress_of(self._session, group, topic, brokers=brokers)).lag
            rows.append(
                TopicTraffic(
                    topic=topic,
                    group=group,
                    lag=lag,
                    in_per_s=came_in[0].tps,
                    out_per_s=went_out[0].tps,
                    in_24_h=came_in[1].sum,
                    out_24_h=went_out[1].sum,
                )
            )
        return rows

    async def rates(self, *, partly: bool = False) -> tuple[SetRate, ...]:
        """The rates that are set for topics and consumer groups, by broker group. `partly` as for
        `traffic`."""
        groups = await self._session.broker_groups()
        if partly:
            found, unasked = await ask_each(self._rates_of, groups)
            self._session.note_unasked(unasked)
        else:
            found = tuple(await run_for_each(self._rates_of, groups))
        return tuple(rate for rates in found for rate in rates)

    async def _rates_of(self, broker: BrokerData) -> list[SetRate]:
        topics = await self._requests.topic_configs(broker)
        groups = await self._requests.group_configs(broker)
        found = [
            *(("topic", name, send_rate(topics[name].attributes)) for name in sorted(topics)),
            *(("group", name, consume_rate(groups[name].attributes)) for name in sorted(groups)),
        ]
        rates = []
        for kind, name, rate in found:
            if rate is None:
                continue
            figure = f"{kind.upper()}_HELD_BACK_TIMES"
            minute, day = await self._figure([broker], figure, name)
            rates.append(SetRate(broker.broker_name, kind, name, *rate, minute.sum, day.sum))
        return rates

    async def history(
        self, server: str | None = None, *, cluster: str | None = None
    ) -> tuple[ServerHistory, ...]:
        """The figures that brokers or name servers have kept of their last hour: of the server with
        this address, of the leader of a broker group, or of all leaders. A broker group that can't
        be asked is noted in `left_out` if others can be. Raises Refused from RocketMQ's servers,
        which keep nothing."""
        if server is not None and ":" in server:
            return (await self._history_of(server),)

        async def ask(group: BrokerData) -> ServerHistory:
            await self._requests.ask_leader(group, RequestCode.GET_BROKER_RUNTIME_INFO)
            return await self._history_of(self._requests.leader(group))

        groups = await self._session.broker_groups(cluster, server)
        found, unasked = await ask_each(ask, groups)
        self._session.note_unasked(unasked)
        return found

    async def _history_of(self, address: str) -> ServerHistory:
        names: tuple[str, ...] = ()
        times: list[int] = []
        rows: list[tuple[float, ...]] = []
        after = 0
        for _ in range(limits.HISTORY_PAGES_MAX):
            header = ViewHistoryHeader(after=after)
            answer = await self._requests.ask(address, header)
            expect_success(answer, header, address)
            bounds = decode_header(ViewHistoryResponseHeader, answer)
            page = decode_body(HistoryBody, answer.payload)
            if any(len(row) != len(page.names) for row in page.rows):
                raise BadInput(f"{address} tells rows of its history that are not whole")
            names = tuple(page.names)
            times += page.times
            rows += map(tuple, page.rows)
            after = bounds.last
            if after >= bounds.newest or not page.rows:
                break
        if len(times) != len(rows):
            raise BadInput(f"{address} tells a history with {len(times)} times, {len(rows)} rows")
        return ServerHistory(address, names, tuple(times), tuple(rows))

    async def _figure(
        self, brokers: list[BrokerData], name: str, key: str
    ) -> tuple[BrokerStatsItem, BrokerStatsItem]:
        """The last minute and the last day of a figure, of all leaders together."""
        header = ViewBrokerStatsDataHeader(stats_name=name, stats_key=key)

        async def ask(broker: BrokerData) -> BrokerStatsData:
            answer = await self._requests.ask_whoever_leads(broker, header)
            if answer.code == ResponseCode.SYSTEM_ERROR:  # never counted there
                return BrokerStatsData(_NOTHING, _NOTHING, _NOTHING)
            expect_success(answer, header, self._requests.leader(broker))
            return decode_body(BrokerStatsData, answer.payload)

        found = await run_for_each(ask, brokers)
        return (
            BrokerStatsItem(
                sum=sum(one.stats_minute.sum for one in found),
                tps=sum(one.stats_minute.tps for one in found),
            ),
            BrokerStatsItem(sum=sum(one.stats_day.sum for one in found)),
        )
