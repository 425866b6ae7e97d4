"""ISO 8601 durations of the time to live (SPEC section 4)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.protocol.iso_duration import format_duration, parse_duration
from tests.examples import examples

MILLISECOND = timedelta(milliseconds=1)


@examples(200)
@given(value=st.timedeltas(min_value=timedelta(0)))
def test_formatted_duration_is_parsed_exactly(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


@examples(200)
@given(milliseconds=st.integers(0, 2**32 - 1))
def test_every_amqp_time_to_live_is_exact_to_the_millisecond(milliseconds: int) -> None:
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
def test_duration_has_the_format_of_service_bus(value: timedelta, written: str) -> None:
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
def test_equivalent_formats_are_parsed(written: str, value: timedelta) -> None:
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
def test_invalid_duration_is_rejected(written: str) -> None:
    with pytest.raises(ValueError, match="is not an ISO 8601 duration"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["P9999999999D", f"PT{'9' * 400}S"])
def test_duration_beyond_timedelta_is_rejected(written: str) -> None:
    with pytest.raises(ValueError, match="is longer than"):
        parse_duration(written)


def test_negative_duration_is_rejected() -> None:
    with pytest.raises(ValueError, match="is negative"):
        format_duration(timedelta(microseconds=-1))
