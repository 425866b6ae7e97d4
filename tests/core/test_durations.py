"""SPEC section 4: the time to live travels as an ISO 8601 duration."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.durations import format_duration, parse_duration

MILLISECOND = timedelta(milliseconds=1)


@settings(max_examples=200)
@given(value=st.timedeltas(min_value=timedelta(0)))
def test_section_4_a_duration_that_was_written_is_read_again_exactly(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


@settings(max_examples=200)
@given(milliseconds=st.integers(0, 2**32 - 1))
def test_section_4_every_time_to_live_that_the_amqp_header_holds_survives_to_the_millisecond(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds * MILLISECOND)) // MILLISECOND == milliseconds


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(milliseconds=1), "PT0.001S"),
        (timedelta(seconds=90), "PT1M30S"),
        (timedelta(hours=1), "PT1H"),
        (timedelta(days=1), "P1D"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=500), "P1DT2H3M4.5S"),
    ],
)
def test_durations_are_written_as_service_bus_writes_them(value: timedelta, written: str) -> None:
    assert format_duration(value) == written


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("PT90M", timedelta(minutes=90)),
        ("PT3600S", timedelta(hours=1)),
        ("P0D", timedelta(0)),
        ("P10675199DT2H48M5.4775807S", timedelta(days=10_675_199, hours=2, minutes=48, seconds=5.4775807)),
    ],
)
def test_durations_of_other_writers_are_read(written: str, value: timedelta) -> None:
    assert parse_duration(written) == value


@pytest.mark.parametrize(
    "written",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1D",
        "P1Y",
        "P1M",
        "P1W",
        "-PT1S",
        "PT1.S",
        "PT1,5S",
        "pt1s",
        "PT1S ",
        "P\u0661D",
        "PT1M1H",
    ],
)
def test_what_is_no_duration_of_days_to_seconds_is_refused_by_name(written: str) -> None:
    with pytest.raises(ValueError, match="is not an ISO 8601 duration"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["P9999999999D", f"PT{'9' * 400}S"])
def test_a_duration_that_no_timedelta_holds_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is longer than"):
        parse_duration(written)


def test_a_negative_duration_is_not_written() -> None:
    with pytest.raises(ValueError, match="is negative"):
        format_duration(timedelta(microseconds=-1))
