from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.demo.comparison import Content, Found, compare

DESTINATIONS = {"flights": "flights", "delays": "delays/Subscriptions/all"}
CONTENT = Content(
    body=b'{"flight": 1545}',
    content_type="application/json",
    subject="UA",
    correlation_id="2013-01-01",
    session_id="N14228",
    time_to_live=timedelta(hours=6),
    scheduled_for=datetime(2030, 1, 1, tzinfo=UTC),
    properties={"origin": "EWR", "delay": 2},
)
KEYS = [("flights", "a"), ("flights", "b"), ("delays", "a")]
EXPECTED = dict.fromkeys(KEYS, CONTENT)


def all_arrived() -> list[Found]:
    return [Found(DESTINATIONS[key[0]], key, CONTENT) for key in KEYS]


def test_complete_run_is_exact():
    result = compare(EXPECTED, all_arrived(), destinations=DESTINATIONS)
    assert result.is_exact
    assert (result.delivered, sum(result.duplicates.values())) == (3, 0)


def test_missing_message_is_lost():
    result = compare(EXPECTED, all_arrived()[1:], destinations=DESTINATIONS)
    assert result.lost == (("flights", "a"),)
    assert not result.is_exact


def test_same_id_at_another_entity_does_not_hide_a_loss():
    result = compare(EXPECTED, all_arrived()[:2], destinations=DESTINATIONS)
    assert result.lost == (("delays", "a"),)


@pytest.mark.parametrize("place", ["flights/$DeadLetterQueue", "contoso/x-servicebus-transfer/3"])
def test_message_in_a_dead_letter_or_backlog_queue_is_stranded(place: str):
    found = [Found(place, ("flights", "a"), CONTENT), *all_arrived()[1:]]
    result = compare(EXPECTED, found, destinations=DESTINATIONS)
    assert result.stranded == {("flights", "a"): place}
    assert result.lost == ()
    assert not result.is_exact


def test_duplicates_are_counted_by_message():
    found = [*all_arrived(), all_arrived()[1], all_arrived()[1]]
    result = compare(EXPECTED, found, destinations=DESTINATIONS)
    assert result.duplicates == {("flights", "b"): 2}
    assert result.delivered == 3


def test_unexpected_message_is_reported():
    found = [*all_arrived(), Found("flights", ("flights", "z"), CONTENT)]
    assert compare(EXPECTED, found, destinations=DESTINATIONS).unexpected == (("flights", "z"),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("body", b"{}"),
        ("session_id", None),
        ("time_to_live", None),
        ("time_to_live", timedelta(hours=5)),
        ("scheduled_for", None),
        ("properties", {"origin": "EWR", "delay": 2, "x-ms-path": "flights"}),
        ("properties", {"origin": "EWR", "delay": 2.0}),
    ],
)
def test_changed_field_is_found_even_in_a_duplicate(field: str, value: object):
    changed = replace(CONTENT, **{field: value})  # type: ignore[arg-type]
    found = [*all_arrived(), Found("flights", ("flights", "a"), changed)]
    (difference,) = compare(EXPECTED, found, destinations=DESTINATIONS).differences
    assert (difference.key, difference.field, difference.actual) == (("flights", "a"), field, value)
