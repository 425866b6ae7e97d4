"""What is done to a message before it leaves the backlog: time to live, schedule, its time in hand (SPEC section 6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.errors import UndeliverableError
from servicebus_pair.core.parcels import Parcel, Selection, TimeToLive, open_parcel
from tests.core import wire

EPOCH = 1_700_000_000.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(EPOCH + seconds, UTC)


def opened(*, policy: TimeToLive, now: float, lock: float = 60, **sent: Any) -> Parcel:
    """A message that reached the backlog at second 0, opened at second ``now``."""
    copied = wire.received(
        wire.sent(wrap(ServiceBusMessage("body", message_id="m", **sent).raw_amqp_message, entity="flights"))
    )
    received: Any = SimpleNamespace(
        raw_amqp_message=copied,
        enqueued_time_utc=at(0),
        locked_until_utc=at(now + lock),
        sequence_number=1,
        message_id="m",
    )
    return open_parcel(received, policy=policy, now=EPOCH + now)


def life_of(parcel: Parcel) -> int | None:
    header = parcel.message.header
    return None if header is None else header.time_to_live


@given(st.integers(1, 10**9), st.floats(0, 10**6))
def test_a_time_to_live_that_starts_again_is_whole_whatever_time_went_by(life: int, now: float):
    sent = ServiceBusMessage("body", time_to_live=timedelta(milliseconds=life)).raw_amqp_message.header
    parcel = opened(policy=TimeToLive.RESTART, now=now, time_to_live=timedelta(milliseconds=life))
    assert sent is not None
    assert life_of(parcel) == sent.time_to_live


@pytest.mark.parametrize(("now", "left"), [(0, 2000), (0.5, 1500), (1.999, 1), (-3600, 2000)])
def test_a_time_to_live_that_elapses_is_what_is_left_of_it_and_no_more_than_it_was(now: float, left: int):
    assert life_of(opened(policy=TimeToLive.ELAPSE, now=now, time_to_live=timedelta(seconds=2))) == left


@pytest.mark.parametrize("now", [2.0, 2.001, 10**6])
def test_at_the_end_of_its_time_to_live_a_message_is_expired(now: float):
    with pytest.raises(UndeliverableError) as caught:
        opened(policy=TimeToLive.ELAPSE, now=now, time_to_live=timedelta(seconds=2))
    assert caught.value.reason == "Expired"


def test_a_message_without_time_to_live_never_elapses():
    assert life_of(opened(policy=TimeToLive.ELAPSE, now=10**9)) is None


@pytest.mark.parametrize(("now", "left"), [(5, 2000), (10, 2000), (11, 1000)])
def test_the_time_to_live_of_a_scheduled_message_counts_from_its_scheduled_time(now: float, left: int):
    parcel = opened(
        policy=TimeToLive.ELAPSE,
        now=now,
        time_to_live=timedelta(seconds=2),
        scheduled_enqueue_time_utc=at(10),
    )
    assert life_of(parcel) == left
    assert bool(parcel.message.annotations) == (now < 10)


@given(st.floats(1, 300), st.floats(0, 10**6))
def test_what_is_in_hand_is_sent_well_inside_its_lock(lock: float, now: float):
    parcel = opened(policy=TimeToLive.RESTART, now=now, lock=lock)
    assert EPOCH + now < parcel.good_until <= EPOCH + now + 0.61 * lock


def test_a_selection_knows_entities_in_any_case_and_none_means_all():
    assert Selection.of(None).wants("anything")
    assert Selection.of(["Flights"]).wants("fLIGHTS")
    assert not Selection.of(["Flights"]).wants("delays")
    assert not Selection.of([]).wants("flights")
