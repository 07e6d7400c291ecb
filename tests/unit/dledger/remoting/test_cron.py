"""Cron expressions: their moments, minute by minute, and errors of wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.cron import Cron, next_ms, parse_cron, zone_named

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"),
    *("America/Santiago", "Africa/Casablanca", "Pacific/Apia", "Pacific/Chatham"),
)
MINUTE = timedelta(minutes=1)
WATCHED_MINUTES = 30 * 60


def brute(cron: Cron, after: datetime, zone: tzinfo, minutes: int) -> datetime | None:
    """Look at a clock of the zone each minute, and at what it left out."""
    at = after.replace(second=0, microsecond=0)
    before = at.astimezone(zone)
    for _ in range(minutes):
        at += MINUTE
        now = at.astimezone(zone)
        shown = now.replace(tzinfo=None)
        skipped = shown - before.replace(tzinfo=None) - MINUTE
        if fits(cron, shown) and (cron.every_hour or now.fold == 0):
            return at
        if not cron.every_hour and any(
            fits(cron, shown - k * MINUTE) for k in range(1, skipped // MINUTE + 1)
        ):
            return at
        before = now
    return None


def fits(cron: Cron, wall: datetime) -> bool:
    """Whether a time of day is meant."""
    return wall.minute in cron.minutes and wall.hour in cron.hours and cron.fits(wall.date())


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    ranged = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, most)
    part = st.one_of(
        number.map(str),
        ranged,
        st.tuples(ranged | number.map(str) | st.just("*"), step).map(lambda p: f"{p[0]}/{p[1]}"),
    )
    return st.just("*") | st.lists(part, min_size=1, max_size=3).map(",".join)


#: Each means a day of each month at least.
DAYS = field(1, 31).map(lambda days: f"{days},1")
EXPRESSIONS = st.tuples(field(0, 59), field(0, 23), DAYS, field(1, 12), field(0, 7)).map(" ".join)
#: When clocks change in these zones.
CHANGES = (
    *(datetime(2026, 3, 29, 1), datetime(2026, 10, 25, 1), datetime(2026, 3, 8, 7)),
    *(datetime(2026, 11, 1, 6), datetime(2026, 4, 4, 15), datetime(2026, 10, 3, 15, 30)),
    *(datetime(2026, 2, 15, 2), datetime(2026, 3, 22, 2), datetime(2011, 12, 30, 10)),
    *(datetime(2026, 4, 4, 14), datetime(2026, 9, 26, 14), datetime(2026, 9, 6, 4)),
)
NEAR_CHANGES = st.builds(
    lambda change, minutes: change + timedelta(minutes=minutes),
    st.sampled_from(CHANGES),
    st.integers(-26 * 60, 3 * 60),
)
MOMENTS = NEAR_CHANGES | st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1))


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS)
@example("30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28, 2))
@example("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 25, 0, 45))
@example("15 * * * *", "Europe/Berlin", datetime(2026, 10, 25, 0, 20))
@example("*/15 2 * * *", "Europe/Berlin", datetime(2026, 3, 29, 0, 59))
@example("0 12 30 12 *", "Pacific/Apia", datetime(2011, 12, 29, 9))
def test_the_next_moment_is_that_of_a_clock_watched_each_minute(
    text: str, zone_name: str, moment: datetime
) -> None:
    """The next moment is that of a clock watched each minute, in every zone, over its changes."""
    cron = parse_cron(text)
    zone, moment = zone_named(zone_name), moment.replace(tzinfo=UTC)
    found = cron.after(moment, zone)
    watched = brute(cron, moment, zone, WATCHED_MINUTES)
    assert found is not None
    assert found == watched if watched else found > moment + (WATCHED_MINUTES - 1) * MINUTE


@pytest.mark.parametrize(
    ("text", "zone", "after", "then"),
    [
        ("0 9 * * MON-FRI", "UTC", "2026-11-20T09:00", "2026-11-23T09:00"),
        ("0 9 * * mon-fri", "Europe/Berlin", "2026-11-23T00:00", "2026-11-23T08:00"),
        ("*/20 * * * *", "UTC", "2026-11-23T10:40", "2026-11-23T11:00"),
        ("5/20 * * * *", "UTC", "2026-11-23T10:45", "2026-11-23T11:05"),
        ("0 0 13 * FRI", "UTC", "2026-11-10T00:00", "2026-11-13T00:00"),
        ("0 0 13 * FRI", "UTC", "2026-11-13T00:00", "2026-11-20T00:00"),
        ("0 0 */2 * MON", "UTC", "2026-11-23T00:00", "2026-12-07T00:00"),
        ("0 0 29 2 *", "UTC", "2026-11-23T00:00", "2028-02-29T00:00"),
        ("0 0 29 FEB *", "UTC", "2096-02-29T00:00", "2104-02-29T00:00"),
        ("0 0 * * 7", "UTC", "2026-11-23T00:00", "2026-11-29T00:00"),
        ("0 0 * * 0", "UTC", "2026-11-23T00:00", "2026-11-29T00:00"),
        ("@daily", "UTC", "2026-11-23T00:00", "2026-11-24T00:00"),
        ("@Weekly", "UTC", "2026-11-23T00:00", "2026-11-29T00:00"),
        ("@monthly", "UTC", "2026-11-23T00:00", "2026-12-01T00:00"),
        ("@yearly", "America/New_York", "2026-11-23T00:00", "2027-01-01T05:00"),
        ("@hourly", "Asia/Kolkata", "2026-11-23T00:00", "2026-11-23T00:30"),
    ],
)
def test_what_is_meant(text: str, zone: str, after: str, then: str) -> None:
    """Names, ranges and steps, as people write them, have the moments that they mean."""
    moment, expected = (datetime.fromisoformat(f"{each}+00:00") for each in (after, then))
    assert parse_cron(text).after(moment, zone_named(zone)) == expected
    after_ms = int(moment.timestamp() * 1000)
    assert next_ms(parse_cron(text), zone_named(zone), after_ms) == expected.timestamp() * 1000


@pytest.mark.parametrize(
    ("text", "after", "moments"),
    [
        # Half past two does not come on 29 March: it is three at once, which is 01:00 UTC.
        ("30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("*/15 2 * * *", "2026-03-29T00:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("0 3 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T01:00"]),
        ("30 2,3 * * *", "2026-03-29T00:00", ["2026-03-29T01:00", "2026-03-29T01:30"]),
        ("30 * * * *", "2026-03-29T00:00", ["2026-03-29T00:30", "2026-03-29T01:30"]),
        # The hour comes twice on 25 October.
        ("30 2 * * *", "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("30 * * * *", "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:30"]),
        ("*/30 2 * * *", "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-26T01:00"]),
    ],
)
def test_the_hour_that_is_skipped_and_the_one_that_is_repeated(
    text: str, after: str, moments: list[str]
) -> None:
    """Hourly moments go by passed time in Berlin's changes of clocks, others by the time of day."""
    at = datetime.fromisoformat(f"{after}+00:00")
    for moment in moments:
        found = parse_cron(text).after(at, zone_named("Europe/Berlin"))
        assert found == datetime.fromisoformat(f"{moment}+00:00")
        at = found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 fields, not 5: minute, hour"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("60 * * * *", "field 1, minute: 60 is not within 0 and 59"),
        ("* 24 * * *", "field 2, hour: 24 is not"),
        ("* * 0 * *", "field 3, day of the month: 0 is not within 1 and 31"),
        ("* * * 13 *", "field 4, month: 13"),
        ("* * * FOO *", "field 4, month: 'FOO' is not a number, nor one of JAN, FEB"),
        ("* * * * 8", "field 5, day of the week: 8 is not within 0 and 7"),
        ("* * * * FRI-MON", "field 5, day of the week: 'FRI-MON' ends before it begins"),
        ("*/0 * * * *", "field 1, minute: the step 0 is not within 1 and 59"),
        ("*/60 * * * *", "the step 60"),
        ("5- * * * *", "field 1, minute: '5-' is not a number, a range"),
        (", * * * *", "field 1, minute: '' is not a number"),
        ("-1 * * * *", "field 1"),
        ("1e1 * * * *", "field 1, minute: '1e1' is not a number"),
        ("\u0661 * * * *", "field 1"),
        ("? * * * *", "field 1"),
        ("0 0 30 2 *", "never comes: field 3, day of the month, is 30"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("@reboot", "not one of @yearly"),
        ("*" * 5000, "5000 characters"),
        ("1,1 " * 60 + "*", "has 61 fields"),
    ],
)
def test_a_wrong_expression_is_told_where(text: str, said: str) -> None:
    """A wrong expression is refused with its field's number, name and possible values."""
    with pytest.raises(BadInput) as caught:
        parse_cron(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "Europe", "Europe/", "/etc/passwd", "../x", "Mars/Olympus", "a" * 5000, "\0", "é"]
)
def test_a_zone_is_a_name_of_one(name: str) -> None:
    """A zone is a known name, and never a path."""
    with pytest.raises(BadInput, match="no time zone"):
        zone_named(name)


def test_at_the_end_of_time_there_is_nothing_more() -> None:
    """A year that no calendar has ends the search."""
    cron = parse_cron("0 0 29 2 *")
    assert cron.after(datetime(9997, 1, 1, tzinfo=UTC), UTC) is None
    for after_ms in (253_402_300_799_999, 2**63 - 1):
        assert next_ms(parse_cron("@daily"), zone_named("Europe/Berlin"), after_ms) is None
