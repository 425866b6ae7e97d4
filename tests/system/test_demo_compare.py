"""The demo's comparison finds what is wrong, whatever the product's own counters say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.demo.compare import Content, Found, compare

DESTINATIONS = {"flights": "flights", "delays": "delays/Subscriptions/all"}
CONTENT = Content(
    body=b'{"flight": 1545}',
    content_type="application/json",
    subject="UA",
    correlation_id="2013-01-01",
    reply_to=None,
    to=None,
    partition_key=None,
    session_id="N14228",
    time_to_live=timedelta(hours=6),
    scheduled_for=datetime(2030, 1, 1, tzinfo=UTC),
    properties={"origin": "EWR", "delay": 2},
)
KEYS = [("flights", "a"), ("flights", "b"), ("delays", "a")]
EXPECTED = dict.fromkeys(KEYS, CONTENT)


def arrived() -> list[Found]:
    """Return every expected message at its place."""
    return [Found(DESTINATIONS[key[0]], key, CONTENT) for key in KEYS]


def test_a_run_in_which_everything_arrived_is_exact():
    verdict = compare(EXPECTED, arrived(), destinations=DESTINATIONS)
    assert verdict.is_exact
    assert (verdict.delivered, sum(verdict.duplicates.values())) == (3, 0)


def test_a_message_that_is_nowhere_is_lost():
    verdict = compare(EXPECTED, arrived()[1:], destinations=DESTINATIONS)
    assert verdict.lost == (("flights", "a"),)
    assert not verdict.is_exact


def test_the_same_id_at_another_entity_does_not_hide_a_loss():
    verdict = compare(EXPECTED, arrived()[:2], destinations=DESTINATIONS)
    assert verdict.lost == (("delays", "a"),)


@pytest.mark.parametrize("place", ["flights/$DeadLetterQueue", "contoso/x-servicebus-transfer/3"])
def test_a_message_in_a_dead_letter_or_backlog_queue_has_not_arrived_but_is_not_lost(place: str):
    found = [Found(place, ("flights", "a"), CONTENT), *arrived()[1:]]
    verdict = compare(EXPECTED, found, destinations=DESTINATIONS)
    assert verdict.stranded == {("flights", "a"): place}
    assert verdict.lost == ()
    assert not verdict.is_exact


def test_extra_copies_are_counted_and_named():
    found = [*arrived(), arrived()[1], arrived()[1]]
    verdict = compare(EXPECTED, found, destinations=DESTINATIONS)
    assert verdict.duplicates == {("flights", "b"): 2}
    assert verdict.delivered == 3


def test_a_message_that_was_never_to_be_sent_is_named():
    found = [*arrived(), Found("flights", ("flights", "z"), CONTENT)]
    assert compare(EXPECTED, found, destinations=DESTINATIONS).strangers == (("flights", "z"),)


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
def test_a_field_that_is_not_as_it_was_sent_is_found_in_a_second_copy_too(field: str, value: object):
    changed = replace(CONTENT, **{field: value})  # type: ignore[arg-type]
    found = [*arrived(), Found("flights", ("flights", "a"), changed)]
    (difference,) = compare(EXPECTED, found, destinations=DESTINATIONS).differences
    assert (difference.key, difference.field, difference.actual) == (("flights", "a"), field, value)
