"""Options and columns of a write to topics: a wrong one is an error that names it."""

from __future__ import annotations

import pytest

from dledger.errors import ConfigError
from mqspark.topics.sink_options import parse_sink

OPTIONS = {"nameServer": "10.0.0.1:9876", "topic": "T", "delivery": "at-least-once"}
COLUMNS = {"value": "binary", "key": "string"}


def test_options_are_read_whatever_their_case() -> None:
    """Options have no case, and Spark's own are let through."""
    given = {name.upper(): value for name, value in OPTIONS.items()} | {"checkpointLocation": "/c"}
    options = parse_sink(given, COLUMNS)
    assert (options.cluster.name_server, options.topic) == ("10.0.0.1:9876", "T")
    assert options.cluster.tls is None


@pytest.mark.parametrize(
    ("changed", "columns", "told"),
    [
        ({"topik": "T"}, COLUMNS, "no option 'topik'"),
        ({"nameServer": ""}, COLUMNS, "nameServer is missing"),
        ({"topic": ""}, COLUMNS, "given nowhere"),
        ({}, COLUMNS | {"topic": "string"}, "given twice"),
        ({"delivery": ""}, COLUMNS, "give exactly-once; or at-least-once"),
        ({"delivery": "at-most-once"}, COLUMNS, "give exactly-once; or at-least-once"),
        ({"home": "broker-a"}, COLUMNS, "home says something only with delivery=exactly-once"),
        ({"firstBatch": "0"}, COLUMNS, "firstBatch says something only"),
        ({"firstBatch": "-1", "delivery": "exactly-once"}, COLUMNS, "it is the number of a batch"),
        ({"tlsKey": "/k"}, COLUMNS, "tlsKey"),
        ({}, {"key": "string"}, "no column value"),
        ({}, COLUMNS | {"offset": "bigint"}, "writes no column 'offset'"),
        ({}, {"value": "int"}, "column value is int"),
    ],
)
def test_what_is_wrong_is_named(
    changed: dict[str, str], columns: dict[str, str], told: str
) -> None:
    """A wrong option or column is named before a row is sent."""
    with pytest.raises(ConfigError, match=told):
        parse_sink(OPTIONS | changed, columns)
