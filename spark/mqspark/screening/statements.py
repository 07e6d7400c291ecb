"""Testimony as numbers: a row of fixed width for each row, in which names are hashes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqspark.screening.hashing import hashed
from mqspark.screening.packets import STATEMENT, Numbers, Rows, numbers, rows_of
from mqspark.screening.testimony import SOURCES

#: How a transaction's producer, and whoever answers for it, will end it, or ended it.
COMMITTED, ROLLED_BACK = 1, 2
_OUTCOMES: Final = ("commit", "rollback")


def statements(testimony: pa.Table, brokers: Sequence[str]) -> Rows:
    """Rows of the testimony with names as numbers. `broker` is a place in `brokers`, -1 for
    another."""
    place = ("queue", "queue_offset", "position", "holders")
    plain = ("identity", "t", *place, "crc", "properties", "due")
    return rows_of(
        STATEMENT,
        **{name: numbers(testimony[name]) for name in plain},
        topic=_topics(testimony["topic"]),
        source=_place_in(testimony["source"], SOURCES),
        broker=_place_in(testimony["broker"], brokers),
        outcome=_place_in(testimony["transaction"], _OUTCOMES) + 1,
        damaged=pc.is_valid(testimony["error"]).to_numpy(),
        definite=numbers(testimony["definite"]) == 1,
    )


def _topics(column: pa.ChunkedArray) -> Numbers:
    """A number for each topic's name."""
    known = pa.chunked_array(column).combine_chunks().dictionary_encode(null_encoding="encode")
    names = pc.fill_null(known.dictionary.cast(pa.string()), "")
    return hashed(names)[known.indices.to_numpy()] if len(known) else np.zeros(0, np.int64)


def _place_in(column: pa.ChunkedArray, values: Sequence[str]) -> Numbers:
    places = pc.index_in(column, value_set=pa.array(values, pa.string()))
    return numbers(pc.fill_null(places, -1))
