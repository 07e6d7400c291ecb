"""Options of the data source `rocketmq`: their meaning, and wrong ones."""

from __future__ import annotations

import json

import pytest

from dledger.errors import ConfigError
from dledger.remoting.json_dialect import MessageQueue
from mqclient import Sql
from mqspark.topics.columns import COLUMNS, arrow_schema
from mqspark.topics.data_source import check_version
from mqspark.topics.options import Options, Place, parse

LEAST = {"nameServer": "127.0.0.1:9876", "subscribe": "T"}
QUEUE = MessageQueue("T", "broker-a", 3)


def options(*, streaming: bool = True, **given: object) -> Options:
    values = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
    }
    return parse({**LEAST, **values}, streaming=streaming)


def test_defaults_are_those_of_sparks_source_for_kafka() -> None:
    """A stream begins with what comes, a batch read has all there is, and a loss is an error."""
    stream, batch = options(), options(streaming=False)
    assert (stream.start.word, batch.start.word, batch.end.word) == ("latest", "earliest", "latest")
    assert stream.fail_on_data_loss
    assert (stream.rows_max, stream.bytes_max, stream.min_partitions) == (None, None, 0)
    assert stream.expression == "*"
    assert not stream.tags


def test_topics_are_named_matched_or_assigned() -> None:
    """Topics are given by exactly one of three options, whose names have no case, as in Spark."""
    assert options(subscribe=" B , A,").topics == ("A", "B")
    given = {"NAMESERVER": "127.0.0.1:1", "subscribepattern": "T.*"}
    matching = parse(given, streaming=True)
    assert [matching.wants(topic) for topic in ("T", "T1", "AT")] == [True, True, False]
    given = {"nameServer": "127.0.0.1:1", "assign": '{"T": {"broker-a": [3, 1, 3]}}'}
    assert parse(given, streaming=True).queues == (MessageQueue("T", "broker-a", 1), QUEUE)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"startingOffsets": "Earliest"}, Place(word="earliest")),
        (
            {"startingOffsets": {"T": {"broker-a": {"3": -2, "life": 9}}}},
            Place(offsets={QUEUE: -2}),
        ),
        ({"startingTimestamp": "1700"}, Place(timestamp_ms=1700)),
        ({"startingOffsetsByTimestamp": {"T": 1700}}, Place(by_topic_ms={"T": 1700})),
        (
            {"startingOffsetsByTimestamp": {"T": {"broker-a": {"3": 1700}}}},
            Place(by_queue_ms={QUEUE: 1700}),
        ),
    ],
)
def test_reading_begins_at_a_word_an_offset_or_a_time(
    given: dict[str, object], place: Place
) -> None:
    """A start is a word, a time, or offsets as a query's progress or rocketmq-spark has them."""
    assert options(**given).start == place
    ending = {name.replace("starting", "ending"): value for name, value in given.items()}
    if "life" not in str(given) and place.word != "earliest":
        assert options(streaming=False, **ending).end == place


def test_a_user_signs_and_a_secret_is_not_shown() -> None:
    """Spark shows options in its plans."""
    given = options(user="me", secret="hush")  # noqa: S106 - nobody's
    assert (given.cluster.user, given.cluster.secret) == ("me", "hush")
    assert "hush" not in repr(given)


def test_messages_are_filtered_by_tags_or_sql() -> None:
    """Filters by tags or SQL92 are written as for RocketMQ's consumers."""
    assert options(subExpression="A || B").tags == {"A", "B"}
    assert options(subExpression="n > 3", expressionType="SQL92").expression == Sql("n > 3")
    assert not options(subExpression="*").tags


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'; it has assign, columns"),
        ({"path": "x"}, "no option 'path'"),
        ({"nameServer": ""}, "nameServer is missing"),
        ({"nameServer": "nowhere"}, "nowhere"),
        ({"subscribe": ""}, "exactly one of the options subscribe, .* given: none"),
        ({"subscribePattern": "T"}, "given: subscribe, subscribePattern"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern='\\('"),
        ({"subscribe": "", "assign": "[]"}, "assign"),
        ({"subscribe": "", "assign": "{}"}, "assign names no queue"),
        ({"subscribe": "", "assign": '{"T": {"b": [true]}}'}, "list of queue ids"),
        ({"subscribe": "", "assign": '{"T": {"b": [-1]}}'}, "list of queue ids"),
        ({"startingOffsets": "first"}, "it is earliest or latest, or JSON"),
        ({"startingOffsets": "{"}, "is not JSON"),
        ({"startingOffsets": '{"T": 3}'}, "object"),
        ({"startingOffsets": '{"T": {"b": {"x": 3}}}'}, "'x' is not a queue id"),
        ({"startingOffsets": '{"T": {"b": {"0": -3}}}'}, "offset -3"),
        ({"startingOffsets": '{"T": {"b": {"0": 1.5}}}'}, "offset 1.5"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "not both"),
        ({"startingTimestamp": "-1"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"T": "soon"}'}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "'error' or 'latest'"),
        ({"endingOffsets": "latest"}, "for batch reads"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number from 1 on"),
        ({"maxBytesPerTrigger": "1k"}, "whole number from 1 on"),
        ({"minPartitions": "-1"}, "whole number from 1 on"),
        ({"maxRecordsPerPartition": "0"}, "whole number from 1 on"),
        ({"failOnDataLoss": "yes"}, "'true' or 'false'"),
        ({"includeHeaders": "1"}, "'true' or 'false'"),
        ({"lossTable": "gone"}, "needs failOnDataLoss=false"),
        ({"expressionType": "SQL"}, "'TAG' or 'SQL92'"),
        ({"expressionType": "SQL92"}, "needs a subExpression"),
        ({"subExpression": "A |"}, "expected \\* or TagA"),
        ({"tlsCert": "c.pem"}, "of no use without tls"),
        ({"tls": "ca.pem", "tlsKey": "k.pem"}, "tlsKey is given without tlsCert"),
        ({"accessKey": "me"}, "no option 'accesskey'"),
    ],
)
def test_what_can_not_be_heeded_is_an_error(given: dict[str, str], said: str) -> None:
    """A wrong option is an error with its name and the possible values."""
    with pytest.raises(ConfigError, match=said):
        options(**given)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "group"])
def test_a_batch_read_has_no_options_of_streams(name: str) -> None:
    """An option of streams is refused for a batch read, where it would do nothing."""
    with pytest.raises(ConfigError, match=f"{name} is for streams"):
        options(streaming=False, **{name: "1"})
    with pytest.raises(ConfigError, match="can't end at -2"):
        options(streaming=False, endingOffsets='{"T": {"b": {"0": -2}}}')


def test_columns_come_as_they_are_named() -> None:
    """Columns come as they are named, once each; by default all but the map of properties."""
    assert arrow_schema((), headers=False).names == [*COLUMNS][:-1]
    assert arrow_schema((), headers=True).names == [*COLUMNS]
    assert arrow_schema(("offset", "key"), headers=True).names == ["offset", "key", "properties"]
    with pytest.raises(ConfigError, match="no 'body'; there are key, value"):
        arrow_schema(("body",), headers=False)
    with pytest.raises(ConfigError, match="twice"):
        arrow_schema(("key", "key"), headers=False)


def test_another_spark_is_refused() -> None:
    """An unsupported Spark is refused with the versions that will do."""
    for version in ("4.0.0", "4.1.2", "4.2.0.dev1", "4.3.0"):
        check_version(version)
    for version in ("3.5.6", "4.4.0", "5.0.0"):
        with pytest.raises(ConfigError, match=f"PySpark 4.0 to 4.3; this one is {version}"):
            check_version(version)
