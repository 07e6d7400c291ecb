"""An exhibit for each of the first violations of every property.

Nothing is read if nothing is violated. Else the history is passed over once more, and the replicas'
segments that have the positions in question are walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dledger.verdict.form import Exhibit, Held
from mqspark.exhibits.held import ReplicaFiles
from mqspark.exhibits.lines import find_lines, position_of, wanted_of
from mqspark.limits import EXHIBIT_POSITIONS_MAX
from mqspark.source.planning import Replica

#: Properties whose violations have the first and the last position of a range.
_OF_RANGES = (5, 13)


def exhibits(
    session: SparkSession,
    history: Path | None,
    replicas: Sequence[Replica],
    rows: Sequence[tuple[int, dict[str, Any]]],
) -> list[Exhibit]:
    """An exhibit for each row: the number of a property, and a violation of it."""
    if not rows:
        return []
    none: list[tuple[list[str], int]] = [([], 0)] * len(rows)
    said = find_lines(session, history, [wanted_of(row) for _, row in rows]) if history else none
    wanted = [_positions(*rows[k], lines) for k, (lines, _) in enumerate(said)]
    places: dict[str, list[dict[int, Held]]] = {}
    for broker in {row["broker"] for _, row in rows if row["broker"]}:
        asked = [
            position
            for (_, row), positions in zip(rows, wanted, strict=True)
            if row["broker"] == broker
            for position in positions
        ]
        own = [replica for replica in replicas if replica.broker == broker]
        places[broker] = [ReplicaFiles(replica).look(asked) for replica in own]
    return [
        Exhibit(lines, hidden, _held(places.get(row["broker"], []), positions))
        for (_, row), (lines, hidden), positions in zip(rows, said, wanted, strict=True)
    ]


def _positions(number: int, row: dict[str, Any], lines: Sequence[str]) -> list[int]:
    """Where to look: where the violation says, and where the message was acknowledged to be."""
    own = list(row["positions"] or [])
    own = own[:1] if number in _OF_RANGES else own
    if row["message_id"] is not None and number not in _OF_RANGES:
        mine = f'"{row["message_id"]}"'
        own += [at for line in lines if mine in line and (at := position_of(line)) is not None]
    return list(dict.fromkeys(own))[:EXHIBIT_POSITIONS_MAX]


def _held(of_replicas: Sequence[dict[int, Held]], positions: Sequence[int]) -> list[Held]:
    """Position by position, what each replica has there."""
    return [found[position] for position in positions for found in of_replicas]
