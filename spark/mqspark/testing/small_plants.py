"""Plants for small runs: faults with the property that finds each, and runs that only look odd."""

from __future__ import annotations

from typing import Final

from mqspark.testing.plants import (
    batch,
    batches,
    content,
    elsewhere,
    group,
    life,
    log,
    plain,
    strange,
    subtle,
    thin,
    times,
    tools,
    unseen,
)

_PLANTS: Final = tuple(
    module.PLANTS
    for module in (
        plain,
        content,
        log,
        group,
        life,
        subtle,
        strange,
        thin,
        elsewhere,
        batch,
        batches,
        times,
        tools,
        unseen,
    )
)
FAULTS: Final = tuple(fault for plants in _PLANTS for fault in plants.faults)
INNOCENT: Final = tuple(plant for plants in _PLANTS for plant in plants.innocents)
