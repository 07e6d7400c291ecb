"""More faults in the batches of a sink: rows that change places, decisions for others, ends at the
wrong time.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.plants.batch import SUNK, Place, Query, begun
from mqspark.testing.small_runs import SmallRun

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(19, "altered")
def rows_turned_round(run: SmallRun, draw: random.Random) -> None:
    """Rows of an entry became messages in another order."""
    query, place = _decided(run)
    query.show(place, query.rows[place][::-1])


@PLANTS.fault(19, "altered")
def one_row_more(run: SmallRun, draw: random.Random) -> None:
    """A row became a message that was never staged."""
    query, place = _decided(run)
    last = query.rows[place][-1]
    query.show(place, [*query.rows[place], replace(last, id=f"{last.id}+")])


@PLANTS.fault(19, "altered")
def one_row_twice(run: SmallRun, draw: random.Random) -> None:
    """A row became two messages."""
    query, place = _decided(run)
    query.show(place, [query.rows[place][0], *query.rows[place]])


@PLANTS.fault(19, "altered")
def rows_traded(run: SmallRun, draw: random.Random) -> None:
    """Rows of two entries became messages in each other's place."""
    query = begun(run)
    first, second = query.stage(1), query.stage(1)
    query.decide(1, first, second)
    query.show(first, query.rows[second])
    query.show(second, query.rows[first])


@PLANTS.fault(19, "altered")
def renamed_row(run: SmallRun, draw: random.Random) -> None:
    """A row became a message under another id."""
    query, place = _decided(run)
    first, *others = query.rows[place]
    query.show(place, [replace(first, id=f"{first.id[:-1]}x"), *others])


@PLANTS.fault(19, "dropped")
@PLANTS.fault(19, "twice")
def dropped_and_shown(run: SmallRun, draw: random.Random) -> None:
    """Rows that counted were dropped, and became messages afterwards."""
    query, place = _decided(run)
    query.drop(place)
    query.show(place)


@PLANTS.fault(19, "dropped")
def dropped_before_its_topic(run: SmallRun, draw: random.Random) -> None:
    """Rows that counted were dropped, and their topic was deleted only afterwards."""
    query, place = _decided(run)
    query.drop(place)
    run.add(control=("delete_topic", {"topic": SUNK}))


@PLANTS.fault(19, "dropped")
def dropped_in_a_new_life(run: SmallRun, draw: random.Random) -> None:
    """Rows that counted were dropped, which were staged after the deletion of their topic."""
    query = begun(run)
    run.add(control=("delete_topic", {"topic": SUNK}))
    place = query.stage(1)
    query.decide(1, place)
    query.drop(place)


@PLANTS.fault(19, "misnamed")
def of_an_earlier_batch(run: SmallRun, draw: random.Random) -> None:
    """A decision names once more what the batch before it had named."""
    query = Query(run)
    first, *_ = query.batch(0)
    query.decide(1, first, query.stage(1))


@PLANTS.fault(19, "misnamed")
def of_its_neighbour(run: SmallRun, draw: random.Random) -> None:
    """A decision names the offset of one entry, and the position of another."""
    query = begun(run)
    (first, _), (_, second) = query.stage(1), query.stage(1)
    query.decide(1, (first, second))


@PLANTS.fault(19, "misnamed")
def of_another_query(run: SmallRun, draw: random.Random) -> None:
    """A query's decision names what another has staged."""
    query, other = begun(run), Query(run)
    other.name += "b"
    query.decide(1, other.stage(1))


@PLANTS.fault(19, "undecided")
def shown_for_another_query(run: SmallRun, draw: random.Random) -> None:
    """Rows that one query has staged became messages by the decision of another."""
    query, other = begun(run), Query(run)
    other.name += "b"
    other.batch(0)
    place = other.stage(1)
    query.decide(1, place)
    other.show(place)


@PLANTS.fault(19, "missing")
def missing_amid_others(run: SmallRun, draw: random.Random) -> None:
    """The second of three entries that count never became messages, through two batches."""
    query = begun(run)
    places = [query.stage(1) for _ in range(3)]
    query.decide(1, *places)
    query.show(places[0])
    query.show(places[2])
    query.batch(2)
    query.batch(3)


@PLANTS.fault(19, "disordered")
def last_of_a_batch_too_late(run: SmallRun, draw: random.Random) -> None:
    """The last entry of a batch became messages after the first of the next one."""
    query = begun(run)
    first, last, following = query.stage(1), query.stage(1), query.stage(2)
    query.decide(1, first, last)
    query.show(first)
    query.decide(2, following)
    query.show(following)
    query.show(last)


@PLANTS.fault(19, "undecided")
def shown_by_an_older_instance(run: SmallRun, draw: random.Random) -> None:
    """Rows that an older instance staged, and decided too late, became messages."""
    query = begun(run)
    query.epoch += 1
    query.batch(1)
    query.epoch -= 1
    place = query.stage(2)
    query.decide(2, place)
    query.show(place)


@PLANTS.innocent
def shown_for_the_last_time(run: SmallRun, draw: random.Random) -> None:
    """An older instance staged rows of a batch, which are dropped as others count."""
    query = begun(run)
    late = query.stage(1)
    query.epoch += 1
    place = query.stage(1, 3)
    query.decide(1, place)
    query.show(place)
    query.drop(late)


@PLANTS.innocent
def nothing_counts(run: SmallRun, draw: random.Random) -> None:
    """A batch was decided in which nothing counts, and what was staged is dropped."""
    query = begun(run)
    place = query.stage(1)
    query.decide(1)
    query.drop(place)
    query.batch(2)


def _decided(run: SmallRun) -> tuple[Query, Place]:
    """A query with one more batch that is decided, of three rows in one entry."""
    query = begun(run)
    place = query.stage(1, 3)
    query.decide(1, place)
    return query, place
