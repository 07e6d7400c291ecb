"""The look at a run's ordinary life in its history, at the end: by workload.

The audit knows nothing of it (:mod:`mqchaos.run.ordinary.given` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mqchaos.history.events import Event
from mqchaos.limits import FOLLOWED_S, HANDED_OVER_WITHIN_S, HELD_BY_TWO_S
from mqchaos.run.load.workload import Workload
from mqchaos.run.ordinary.administered import (
    about_administering,
    about_keys,
    administered,
    against_administering,
    against_moving,
    keys_in,
)
from mqchaos.run.ordinary.given import (
    about_deploying,
    about_sharing,
    about_younger,
    against_deploying,
    against_sharing,
    against_skipping,
    all_given,
    given,
    shared,
)
from mqchaos.run.ordinary.handing_over import against_pausing, handed_over, longest_of


class Lived(NamedTuple):
    """Facts of a run that are not in its history: how often consumers were deployed, how many
    queues the topic had at first, how many times slower than it should be the machine was, and the
    readers that were given each message once."""

    group: str
    deployed: int
    queues: int
    slowness: float
    readers: Sequence[str]


def look(
    workload: Workload, history: Callable[[], Iterator[Event]], lived: Lived
) -> tuple[list[str], list[str]]:
    """Faults that were found, and counts for the report."""
    if workload.deployed:
        found = all_given([given(history(), reader) for reader in lived.readers])
        over = longest_of(handed_over(history(), reader) for reader in lived.readers)
        wrong = against_deploying(found)
        if not found.faults:  # with them all takes longer
            wrong += against_pausing(over, HANDED_OVER_WITHIN_S * lived.slowness)
        return wrong, [about_deploying(found, lived.deployed, over.pause_s)]
    if workload.tools == "widens":
        found = given(history(), lived.group, lived.queues)
        return against_skipping(found), [about_younger(found)]
    if workload.lives or workload.tools == "resets":
        done = administered(history, lived.group, FOLLOWED_S * lived.slowness)
        return against_administering(done), [about_administering(done)]
    if workload.groups > 1:
        keys = keys_in(history())
        wrong = against_skipping(given(history(), lived.group)) + against_moving(keys)
        return wrong, [about_keys(keys)]
    if workload.forks:
        between = shared(history(), lived.group)
        wrong = against_skipping(given(history(), lived.group))
        wrong += against_sharing(between, HELD_BY_TWO_S * lived.slowness)
        return wrong, [about_sharing(between)]
    return [], []
