"""Moments by the calendar: cron expressions, and the first moment of one after another. Pure.

Five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), by the
local time of a zone. A field is a list of `*`, numbers, ranges `a-b`, and these with a step, `*/n`,
`a-b/n`, `a/n` (from a on). Months and days have their English names, too, of three letters. If
neither day begins with `*`, a day is meant that fits one of the two; else one that fits both, as
ever with cron.

When clocks change, an expression for every hour (its second field is `*`) goes by the time that
passes: nothing comes in the hour that is skipped, and all in both of the two that are alike. Any
other is for times of day: those in the hour that is skipped come once, when it is skipped; those in
the hour that is repeated come in the first of the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dledger.errors import BadInput
from dledger.limits import CRON_CHARACTERS_MAX, CRON_YEARS_MAX, ZONE_CHARACTERS_MAX

_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART: Final = re.compile(r"(\*|[0-9A-Za-z]{1,3}(?:-[0-9A-Za-z]{1,3})?)(?:/([0-9]{1,3}))?")
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_MINUTE: Final = timedelta(minutes=1)
#: No change of a clock is larger: a whole day, at the date line.
_NEAR: Final = timedelta(hours=25)


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: Mapping[str, int] = {}


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)


class Cron(NamedTuple):
    """An expression that was read. Days of the week are Python's: Monday is 0."""

    minutes: Sequence[int]
    hours: Sequence[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    every_hour: bool

    def fits(self, day: date) -> bool:
        """Whether anything is meant on a day."""
        if day.month not in self.months:
            return False
        fit = day.day in self.days, day.weekday() in self.weekdays
        return any(fit) if self.either_day else all(fit)

    def after(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """The first moment after one, in UTC; None if there is none for decades."""
        moment = moment.astimezone(UTC)
        local = moment.astimezone(zone).replace(tzinfo=None)
        wall = next(self._walls(local.replace(second=0, microsecond=0) + _MINUTE), None)
        if wall is None:
            return None
        found = wall.replace(tzinfo=zone).astimezone(UTC)
        around = (moment - _NEAR, moment + _NEAR, found - _NEAR, found + _NEAR)
        if len({each.astimezone(zone).utcoffset() for each in around}) == 1:
            return found
        return self._by_and_by(moment, local, zone)

    def _by_and_by(self, moment: datetime, local: datetime, zone: tzinfo) -> datetime | None:
        """The first moment after one where clocks change near by: every moment that any time of day
        may mean is looked at."""
        best: datetime | None = None
        until: datetime | None = None
        for wall in self._walls(local - _NEAR):
            if until is not None and wall > until:
                break
            for found in self._moments(wall, zone):
                if found > moment and (best is None or found < best):
                    best = found
                    until = found.astimezone(zone).replace(tzinfo=None) + _NEAR
        return best

    def _moments(self, wall: datetime, zone: tzinfo) -> Iterator[datetime]:
        """When a clock of the zone shows a time, or would."""
        first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if first.astimezone(zone).replace(tzinfo=None) == wall:
            yield first
            if self.every_hour and second != first:
                yield second
        elif not self.every_hour:
            # `second` lies before the change, `first` behind it.
            before = second.astimezone(zone).utcoffset()
            low, high = second, first
            while high - low > _MINUTE:
                middle = low + (high - low) // (2 * _MINUTE) * _MINUTE
                same = middle.astimezone(zone).utcoffset() == before
                low, high = (middle, high) if same else (low, middle)
            yield high

    def _walls(self, begin: datetime) -> Iterator[datetime]:
        """Times of day that are meant, from one on."""
        day = begin.date()
        for _ in range(366 * CRON_YEARS_MAX):
            if self.fits(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        wall = datetime(day.year, day.month, day.day, hour, minute)
                        if wall >= begin:
                            yield wall
            day = _next_day(day) if day.month in self.months else _next_month(day)
            if day.year >= date.max.year - 1:
                return


def _next_day(day: date) -> date:
    return day + timedelta(days=1)


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


@lru_cache(maxsize=1024)
def parse_cron(text: str) -> Cron:
    """The times of a cron expression. Raises BadInput, which names the field, and what it can
    be."""
    if len(text) > CRON_CHARACTERS_MAX:
        raise BadInput(f"a cron expression of {len(text)} characters, above {CRON_CHARACTERS_MAX}")
    if text.startswith("@") and text.lower() not in _NICKNAMES:
        raise BadInput(f"the cron expression {text!r} is not one of {', '.join(_NICKNAMES)}")
    fields = _NICKNAMES.get(text.lower(), text).split()
    if len(fields) != len(_FIELDS):
        raise BadInput(
            f"the cron expression {text!r} has {len(fields)} fields, not {len(_FIELDS)}: "
            + ", ".join(field.name for field in _FIELDS)
        )
    minutes, hours, days, months, weekdays = (
        _read(value, field, number, text)
        for number, (value, field) in enumerate(zip(fields, _FIELDS, strict=True), 1)
    )
    cron = Cron(
        sorted(minutes),
        sorted(hours),
        frozenset(days),
        frozenset(months),
        frozenset((day - 1) % 7 for day in weekdays),
        either_day=not (fields[2].startswith("*") or fields[4].startswith("*")),
        every_hour=fields[1] == "*",
    )
    if next(cron._walls(datetime(2000, 1, 1)), None) is None:
        raise BadInput(
            f"the cron expression {text!r} never comes: field 3, day of the month, is {fields[2]}, "
            f"and no month of field 4, {fields[3]}, has such a day"
        )
    return cron


def _read(value: str, field: _Field, number: int, text: str) -> set[int]:
    """The numbers that a field means. Raises BadInput."""
    found: set[int] = set()
    for part in value.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _wrong(
                text, number, field, f"{part!r} is not a number, a range, * or a step of these"
            )
        span, step = match[1], match[2]
        low, dash, high = span.partition("-")
        begin = field.least if span == "*" else _number(low, field, number, text)
        end = _number(high, field, number, text) if dash else begin
        if span == "*" or (step is not None and not dash):
            end = field.most
        if end < begin:
            raise _wrong(text, number, field, f"{span!r} ends before it begins")
        if step is not None and not 0 < int(step) <= field.most:
            raise _wrong(text, number, field, f"the step {step} is not within 1 and {field.most}")
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _number(word: str, field: _Field, number: int, text: str) -> int:
    value = field.names.get(word.upper())
    if value is not None:
        return value
    if not word.isdigit():
        named = f", nor one of {', '.join(field.names)}" if field.names else ""
        raise _wrong(text, number, field, f"{word!r} is not a number{named}")
    if not field.least <= int(word) <= field.most:
        raise _wrong(text, number, field, f"{word} is not within {field.least} and {field.most}")
    return int(word)


def _wrong(text: str, number: int, field: _Field, why: str) -> BadInput:
    return BadInput(f"the cron expression {text!r}: field {number}, {field.name}: {why}")


def zone_named(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises BadInput for one that is not known here."""
    if name == "UTC":
        return UTC
    if len(name) <= ZONE_CHARACTERS_MAX and _ZONE.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise BadInput(f"no time zone is called {name[:80]!r}: expected a name like Europe/Berlin")


def next_ms(cron: Cron, zone: tzinfo, after_ms: int) -> int | None:
    """The first moment after one, in milliseconds since 1970; None if there is none."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=after_ms)
        found = cron.after(moment, zone)
    except OverflowError:
        return None  # no calendar reaches so far
    return None if found is None else int(found.timestamp()) * 1000
