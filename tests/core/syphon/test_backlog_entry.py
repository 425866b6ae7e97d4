"""Time to live, schedule and lock of a message that leaves the backlog (SPEC section 6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import InvalidMessageError, UndeliverableError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.relayed_message import BacklogRewriter, RelayedMessage
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import from_sdk, to_amqp_message
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from servicebus_pair.core.syphon import backlog_entry
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry, Selection, TimeToLive, read_entry, session_of
from tests.core.support import encoding as wire
from tests.core.support.message_strategies import LASTING, WHOLE, messages
from tests.examples import examples

EPOCH = 1_700_000_000.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(EPOCH + seconds, UTC)


def read(*, policy: TimeToLive, now: float, lock: float = 60, **sent: Any) -> BacklogEntry:
    """A message enqueued in the backlog at second 0, read at second ``now``."""
    copied = wire.decode(
        wire.encode(wrap(to_amqp_message(ServiceBusMessage("body", message_id="m", **sent)), entity="flights"))
    )
    received: Any = SimpleNamespace(
        amqp=copied,
        decode_error=None,
        enqueued_time=at(0),
        locked_until=at(now + lock),
        sequence_number=1,
        message_id="m",
    )
    return read_entry(received, policy=policy, now=EPOCH + now)


def time_to_live_of(entry: BacklogEntry) -> int | None:
    assert isinstance(entry.message, AmqpMessage)
    header = entry.message.header
    return None if header is None else header.time_to_live


@given(st.integers(1, 10**9), st.floats(0, 10**6))
def test_restart_keeps_the_whole_time_to_live(life: int, now: float):
    sent = ServiceBusMessage("body", time_to_live=timedelta(milliseconds=life)).raw_amqp_message.header
    entry = read(policy=TimeToLive.RESTART, now=now, time_to_live=timedelta(milliseconds=life))
    assert sent is not None
    assert time_to_live_of(entry) == sent.time_to_live


@pytest.mark.parametrize(("now", "left"), [(0, 2000), (0.5, 1500), (1.999, 1), (-3600, 2000)])
def test_elapse_subtracts_the_time_in_the_backlog(now: float, left: int):
    assert time_to_live_of(read(policy=TimeToLive.ELAPSE, now=now, time_to_live=timedelta(seconds=2))) == left


@pytest.mark.parametrize("now", [2.0, 2.001, 10**6])
def test_elapse_raises_expired_at_the_end_of_the_time_to_live(now: float):
    with pytest.raises(UndeliverableError) as caught:
        read(policy=TimeToLive.ELAPSE, now=now, time_to_live=timedelta(seconds=2))
    assert caught.value.reason == "Expired"


def test_elapse_keeps_a_message_without_time_to_live():
    assert time_to_live_of(read(policy=TimeToLive.ELAPSE, now=10**9)) is None


@pytest.mark.parametrize(("now", "left"), [(5, 2000), (10, 2000), (11, 1000)])
def test_elapse_counts_from_the_scheduled_time(now: float, left: int):
    entry = read(
        policy=TimeToLive.ELAPSE,
        now=now,
        time_to_live=timedelta(seconds=2),
        scheduled_enqueue_time_utc=at(10),
    )
    assert time_to_live_of(entry) == left
    assert isinstance(entry.message, AmqpMessage)
    assert bool(entry.message.annotations) == (now < 10)


@pytest.mark.parametrize("now", [9.999, 10])
def test_a_schedule_is_removed_when_it_has_passed_and_other_annotations_stay(now: float):
    entry = read(policy=TimeToLive.RESTART, now=now, scheduled_enqueue_time_utc=at(10), partition_key="k")
    assert isinstance(entry.message, AmqpMessage)
    names = {str(name) for name in entry.message.annotations or {}}
    assert names == {"x-opt-partition-key", *([] if now == 10 else ["x-opt-scheduled-enqueue-time"])}


@pytest.mark.parametrize(("lock", "seconds"), [(60, 36), (0.001, 0.0006), (0, 18), (-5, 18)])
def test_a_lock_that_seems_to_have_ended_is_taken_to_last_30_seconds(lock: float, seconds: float):
    entry = read(policy=TimeToLive.RESTART, now=7, lock=lock)
    assert entry.send_before - EPOCH - 7 == pytest.approx(seconds, abs=1e-4)


@given(st.floats(1, 300), st.floats(0, 10**6))
def test_send_before_leaves_time_to_settle(lock: float, now: float):
    entry = read(policy=TimeToLive.RESTART, now=now, lock=lock)
    assert EPOCH + now < entry.send_before <= EPOCH + now + 0.61 * lock


def test_a_selection_ignores_case_and_none_matches_all():
    assert Selection.of(None).matches("anything")
    assert Selection.of(["Flights"]).matches("fLIGHTS")
    assert not Selection.of(["Flights"]).matches("delays")
    assert not Selection.of([]).matches("flights")


@pytest.mark.fast_sdk
@examples(150, quick=20)
@example(message=WHOLE, policy=TimeToLive.RESTART)
@example(message=LASTING, policy=TimeToLive.ELAPSE)
@example(message=AmqpAnnotatedMessage(data_body=b"", properties={"message_id": ""}), policy=TimeToLive.RESTART)
@given(message=messages(), policy=st.sampled_from(TimeToLive))
def test_section_4_a_message_that_stays_encoded_has_the_bytes_that_decoding_and_encoding_give(
    message: AmqpAnnotatedMessage, policy: TimeToLive
) -> None:
    copied = wrap(from_sdk(message), entity="flights")
    broker = {"x-opt-sequence-number": 7, "x-opt-enqueued-time": amqp_typed("TIMESTAMP", int(EPOCH * 1000) - 1)}
    copied.annotations = {**broker, **(copied.annotations or {})}
    data = wire.encode(copied)

    def outcome(rewriter: BacklogRewriter | None) -> object:
        received = RelayDelivery(data, delivery_id=0, receiver=None, lock_ends=EPOCH + 60)
        try:
            entry = read_entry(received, policy=policy, now=EPOCH, rewriter=rewriter)
        except UndeliverableError as error:
            return error.reason
        back = entry.message
        assert isinstance(back, RelayedMessage)
        assert (entry.send_before, entry.lock_seconds) == (EPOCH + 36, 60)
        return entry.entity, back.encoded, back.message_id, back.session_id, back.partition_key

    # Each writes the time of encoding into a message with a time to live.
    with patch("time.mktime", return_value=EPOCH):
        assert outcome(BacklogRewriter(elapses=policy is TimeToLive.ELAPSE)) == outcome(None)


@pytest.mark.parametrize(
    ("path", "session", "found"),
    [("Flights", "a", ("flights", "a")), ("Flights", None, None), (None, "a", None), (None, None, None)],
)
def test_a_session_is_one_of_an_entity_and_what_can_never_be_delivered_has_none(
    path: str | None, session: str | None, found: tuple[str, str] | None
) -> None:
    sent = to_amqp_message(ServiceBusMessage("x", message_id="m", session_id=session))
    received: Any = SimpleNamespace(amqp=sent if path is None else wrap(sent, entity=path))
    assert session_of(received) == found


def test_a_decoded_message_that_cannot_be_encoded_again_is_undeliverable() -> None:
    copied = wrap(to_amqp_message(ServiceBusMessage("x", message_id="m")), entity="flights")
    received = RelayDelivery(bytes(wire.encode(copied)), delivery_id=1, receiver=None, lock_ends=EPOCH + 60)
    with patch.object(backlog_entry, "encode_message", side_effect=InvalidMessageError("no such type")):
        with pytest.raises(UndeliverableError, match="no such type") as caught:
            read_entry(received, policy=TimeToLive.RESTART, now=EPOCH)
        assert caught.value.reason == "InvalidMessage"
