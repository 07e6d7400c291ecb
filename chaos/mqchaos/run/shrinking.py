"""A plan that shows a violation, made smaller while it still does. Pure.

Delta debugging (Zeller, 2002) over units: a fault with its end is one, a wait for all replicas is
another. What is left out leaves its time behind, so that the rest comes when it came. When no unit
can be spared any more, the waits are shortened, and then the load.

It is a generator of candidates: it is sent whether the violation stayed, and returns the smallest
plan that had it. Real runs are not the same twice, so the answer may be wrong for a candidate that
only sometimes shows it; the result is a plan that was seen to fail, whatever was answered before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from mqchaos.faults.generator import After, Phase, Plan
from mqchaos.limits import HALVINGS_MAX, RATE_PER_S_MIN
from mqchaos.run.planned import Planned

Candidates: TypeAlias = Generator[Planned, bool, Planned]
Unit: TypeAlias = tuple[int, ...]


def smaller(planned: Planned) -> Candidates:
    """Candidates, the smallest first that are worth a try; returns the smallest that failed."""
    planned = yield from _fewer_units(replace(planned, drawn_by=""))
    planned = yield from _halved(planned, _shorter)
    return (yield from _halved(planned, _calmer))


def units(plan: Plan) -> list[Unit]:
    """The steps, by number, that only make sense together."""
    open_faults: list[int] = []
    found: dict[int, list[int]] = {}
    for number, step in enumerate(plan):
        if step.phase is Phase.HEAL:
            healed = [k for k in open_faults if step.name in (plan[k].name, "")]
            if healed:
                open_faults.remove(healed[0])
                found[healed[0]].append(number)
            continue
        found[number] = [number]
        if step.phase is Phase.INJECT:
            open_faults.append(number)
    return [tuple(numbers) for numbers in found.values()]


def with_units(plan: Plan, kept: Sequence[Unit]) -> Plan:
    """Only these; the time that the others took stays."""
    chosen = {number for unit in kept for number in unit}
    result, waited_s = [], 0.0
    for number, step in enumerate(plan):
        after = isinstance(step.when, After)
        waited_s += step.when.seconds if isinstance(step.when, After) else 0.0
        if number in chosen:
            when = After(round(waited_s, 3)) if after else step.when
            result.append(replace(step, when=when))
            waited_s = 0.0
    return tuple(result)


def _fewer_units(planned: Planned) -> Candidates:
    """Zeller's ddmin; but first none at all, for a violation that needs no fault."""
    plan, kept, parts = planned.steps, units(planned.steps), 2
    if kept and (yield replace(planned, steps=())):
        return replace(planned, steps=())
    while len(kept) >= 2:
        size = -(-len(kept) // parts)
        chunks = [kept[start : start + size] for start in range(0, len(kept), size)]
        for rest in _tries(chunks):
            if (yield replace(planned, steps=with_units(plan, rest))):
                parts = 2 if rest in chunks else max(parts - 1, 2)
                kept = rest
                break
        else:
            if parts >= len(kept):
                break
            parts = min(2 * parts, len(kept))
    return replace(planned, steps=with_units(plan, kept))


def _tries(chunks: list[list[Unit]]) -> list[list[Unit]]:
    """Each part by itself, and then each part left out."""
    if len(chunks) == 2:
        return chunks
    without = [
        [unit for other in chunks if other is not chunk for unit in other] for chunk in chunks
    ]
    return [*chunks, *without]


def _halved(planned: Planned, half: Callable[[Planned], Planned]) -> Candidates:
    for _ in range(HALVINGS_MAX):
        candidate = half(planned)
        if candidate == planned or not (yield candidate):
            break
        planned = candidate
    return planned


def _shorter(planned: Planned) -> Planned:
    steps = tuple(
        replace(step, when=After(round(step.when.seconds / 2, 3)))
        if isinstance(step.when, After)
        else step
        for step in planned.steps
    )
    return replace(planned, steps=steps)


def _calmer(planned: Planned) -> Planned:
    return replace(planned, rate_per_s=max(planned.rate_per_s / 2, RATE_PER_S_MIN))
