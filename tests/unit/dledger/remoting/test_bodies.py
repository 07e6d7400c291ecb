"""JSON bodies in both dialects, against texts that the reference wrote."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting import json_dialect
from dledger.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    Dialect,
    HeartbeatData,
    KVTable,
    LockBatchBody,
    LockBatchResponseBody,
    MessageQueue,
    OffsetWrapper,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
    TopicStats,
    decode_body,
    encode_body,
)
from dledger.remoting.bodies.base import encode_steps

ROUTE = TopicRouteData(
    [BrokerData("DefaultCluster", "größe", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})],
    [QueueData("größe", 8, 8)],
)
ROUTE_LOOSE = (
    '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"größe",'
    '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"größe",'
    '"perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
).encode()
ROUTE_STANDARD = (
    ROUTE_LOOSE.decode()
    .replace("{0:", '{"0":')
    .replace(",1:", ',"1":')
    .replace("größe", r"gr\u00f6\u00dfe")
    .encode()
)
STATS = TopicStats({MessageQueue("T", "b", 0): TopicOffset(0, 7, 1)})
STATS_LOOSE = (
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
    b'{"lastUpdateTimestamp":1,"maxOffset":7,"minOffset":0}}}'
)


def test_numeric_map_keys_are_bare_in_the_loose_dialect_and_quoted_in_the_standard_one() -> None:
    """Numeric map keys are bare in the loose dialect and quoted in the standard one."""
    assert encode_body(ROUTE, Dialect.LOOSE) == ROUTE_LOOSE
    assert encode_body(ROUTE) == ROUTE_STANDARD


@pytest.mark.parametrize("written", [ROUTE_LOOSE, ROUTE_STANDARD])
def test_a_route_is_read_in_both_dialects(written: bytes) -> None:
    """A route is read in either dialect."""
    assert decode_body(TopicRouteData, written) == ROUTE


def test_a_map_keyed_by_queues_has_objects_as_keys_in_the_loose_dialect() -> None:
    """Maps keyed by queues are written as stock clients expect TopicStats, though invalid JSON."""
    assert encode_body(STATS, Dialect.LOOSE) == STATS_LOOSE
    assert decode_body(TopicStats, STATS_LOOSE) == STATS


def test_a_map_keyed_by_queues_has_their_json_as_keys_in_the_standard_dialect() -> None:
    """Maps keyed by queues have a text as key, which is valid JSON and names the queue."""
    written = encode_body(STATS)
    assert rb'"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":{' in written
    assert decode_body(TopicStats, written) == STATS


names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
queues = st.builds(MessageQueue, names, names, st.integers(0, 1000))
counts = st.integers(0, 2**62)
bodies = (
    st.builds(
        ConsumeStats, st.dictionaries(queues, st.builds(OffsetWrapper, counts, counts, counts))
    )
    | st.builds(BrokerData, names, names, st.dictionaries(st.integers(0, 99), names))
    | st.builds(KVTable, st.dictionaries(names, names))
    | st.builds(LockBatchResponseBody, st.lists(queues))
    | st.builds(LockBatchBody, names, names, st.lists(queues))
)


@given(bodies, st.sampled_from(Dialect))
def test_decoding_undoes_encoding_in_both_dialects(body: KVTable, dialect: Dialect) -> None:
    """Decoding undoes encoding in both dialects, with any names."""
    assert decode_body(type(body), encode_body(body, dialect)) == body


@given(st.one_of(bodies, st.builds(TopicConfig, names), st.builds(TopicRouteData)))
def test_the_fast_writer_writes_what_the_careful_one_does(body: KVTable) -> None:
    """Bodies that are ASCII and have no member None are written in one pass, with one outcome."""
    written = encode_body(body)
    assert written.isascii()
    assert json.loads(written) == json.loads(json_dialect._written(body, loose=False))


@given(bodies, st.sampled_from(Dialect), st.sampled_from([0, 1, 70]))
def test_a_body_written_in_steps_is_the_same(body: KVTable, dialect: Dialect, more: int) -> None:
    """A body written in steps equals one written at once, and each step is short."""
    offsets = {MessageQueue(f"é{number}", "b", number): OffsetWrapper() for number in range(more)}
    lists = ConsumeStatsList([{"G": [ConsumeStats(offsets)]}, {"H": []}], "b")
    for each in (body, lists):
        pieces = list(encode_steps(each, dialect))
        assert json_of(b"".join(pieces)) == json_of(encode_body(each, dialect))
        assert max(map(len, pieces)) < 8192 or each is body


def json_of(written: bytes) -> object:
    """The value of a body, whether letters are escaped or not."""
    return json_dialect.parse(written)


def test_a_stock_heartbeat_is_read() -> None:
    """A heartbeat of a 5.x consumer is read, with members that we don't know."""
    heartbeat = decode_body(
        HeartbeatData,
        b'{"clientID":"10.0.0.9@1#2","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG",'
        b'"subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}],'
        b'"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":'
        b'[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}',
    )
    assert heartbeat.client_id == "10.0.0.9@1#2"
    assert heartbeat.producer_data_set[0].group_name == "CLIENT_INNER_PRODUCER"
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.group_name == "G"
    assert consumer.subscription_data_set[0].tags_set == ("TagA",)
    assert consumer.subscription_data_set[0].code_set == (2598919,)


def test_a_stock_registration_is_read() -> None:
    """A registration of a 4.9 broker is read; null members count as missing."""
    body = decode_body(
        RegisterBrokerBody,
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
        b'"timestamp":17},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":null,"topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}}',
    )
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.data_version.counter == 1
    assert wrapper.topic_config_table == {"T": TopicConfig("T", 4, 4)}


def test_cluster_info_is_written_as_stock_name_servers_do() -> None:
    """Cluster info is written in the loose dialect, always."""
    info = ClusterInfo({"b": BrokerData("c", "b", {0: "h:1"})}, {"c": ["b"]})
    assert encode_body(info, Dialect.LOOSE) == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false}},'
        b'"clusterAddrTable":{"c":["b"]}}'
    )


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a"}', "expected ':'"),
        (b'{"a":1 "b":2}', "expected ','"),
        (b"[1,", "not JSON"),
        (b"{} {}", "more than one"),
        (b'{"a":NaN}', "NaN"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "deeper than 32"),
        (b'{"a":' * 100_000, "deeper than 32"),
        (b"{{" * 100_000, "deeper than 32"),
        (b"{[1]:2}", "map key"),
        (b'{{"topic":"T"}:2}', "not a message queue"),
        (b"7", "Expected `object`, got `int`"),
        (b'{"brokerDatas":[{"brokerName":"b"}]}', r"`cluster` - at `\$.brokerDatas\[0\]`"),
        (
            b'{"queueDatas":[{"brokerName":"b","readQueueNums":"x","writeQueueNums":1}]}',
            "readQueueNums",
        ),
        (
            b'{"brokerDatas":[{"brokerName":"b","cluster":"c","brokerAddrs":{"x":"h:1"}}]}',
            "brokerAddrs",
        ),
    ],
)
def test_bad_bodies_are_refused_by_name(bad: bytes, reason: str) -> None:
    """A bad body is refused with its member, or its character."""
    with pytest.raises(BadInput, match=reason):
        decode_body(TopicRouteData, bad)


@given(st.binary(max_size=100) | st.text('{}[]:,"0123 e-.\\nulltrue').map(str.encode))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    """Random bytes raise the error that servers expect, or none."""
    try:
        decode_body(TopicRouteData, data)
    except BadInput:
        return


def test_a_large_body_that_only_the_slow_reader_knows_is_refused_at_once() -> None:
    """A megabyte takes it most of a second, and the event loop would stand still."""
    begun = time.thread_time()
    with pytest.raises(BadInput, match="above"):
        decode_body(KVTable, b'{"table":{1:' + b" " * 4_000_000 + b'"x"}}')
    assert time.thread_time() - begun < 0.2


def test_queues_sort_as_stock_clients_sort_them() -> None:
    """Queues are sorted by topic, broker name and queue id, equally at all members."""
    unsorted = [MessageQueue("T", "b", 2), MessageQueue("T", "a", 10), MessageQueue("S", "z", 9)]
    assert [queue.queue_id for queue in sorted(unsorted)] == [9, 10, 2]


def test_a_heartbeat_may_number_its_enums_as_cpp_clients_do() -> None:
    """Numbers become names; one that no constant has is refused by the member's name."""
    data = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":%d,'
    data += b'"messageModel":1,"consumeFromWhere":4}]}'

    (group,) = decode_body(HeartbeatData, data % 1).consumer_data_set

    assert group == ConsumerData(
        "G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"
    )
    with pytest.raises(BadInput, match="9 is not the number of one of CONSUME_ACTIVELY"):
        decode_body(HeartbeatData, data % 9)


def test_a_string_that_is_no_utf8_is_refused_as_such() -> None:
    """Found by damaging a captured heartbeat: it must not be an internal error of the server."""
    with pytest.raises(BadInput, match="utf-8.*0x80 in position 13"):
        decode_body(HeartbeatData, b'{"clientID":"\x80"}')
