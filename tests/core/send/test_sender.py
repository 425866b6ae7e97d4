"""Scheduled messages: on the primary, cancelled, and diverted (SPEC section 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import EntityHealth, HealthState, PairOptions
from servicebus_pair.core.model.errors import HealthStoreError, InvalidMessageError, SendTimeoutError, ServiceError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.send.sender import PairSender, _with_schedule
from tests.core.support.local_pair import LocalPair, numbered
from tests.core.support.manual_clock import START, ManualClock
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated

LATER = datetime(2030, 1, 1, tzinfo=UTC)


async def scheduled(local_pair: LocalPair) -> dict[str | None, datetime | None]:
    held = await peek_all(local_pair.primary.connection_string, "flights")
    return {message.message_id: message.scheduled_enqueue_time_utc for message in held}


async def test_section_4_scheduled_messages_wait_on_the_primary_and_can_be_cancelled(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        result = await sender.schedule(numbered(3), LATER)
        assert (result.sent.primary_ids, result.sent.diverted) == (("m0", "m1", "m2"), 0)
        assert len(set(result.sequence_numbers)) == 3
        assert await scheduled(local_pair) == dict.fromkeys(("m0", "m1", "m2"), LATER)
        await sender.cancel_scheduled(result.sequence_numbers[:2])
        await sender.cancel_scheduled(result.sequence_numbers[2])
    assert await scheduled(local_pair) == {}


async def test_section_4_a_diverted_schedule_has_no_sequence_numbers(
    local_pair: LocalPair,
) -> None:
    message = ServiceBusMessage("later", message_id="m0")
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        result = await sender.schedule(message, LATER)
        assert (result.sent.diverted_ids, result.sequence_numbers) == (("m0",), ())
        await local_pair.pair.mark_healthy("flights")
    assert (await local_pair.pair.syphon().drain()).moved == {"flights": 1}
    assert await scheduled(local_pair) == {"m0": LATER}
    assert message.scheduled_enqueue_time_utc is None


async def test_section_4_schedule_honours_its_timeout(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=9))
        local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.MANAGE,)))
        with pytest.raises(SendTimeoutError) as caught:
            await sender.schedule(numbered(2), LATER, timeout=0.5)
    assert len(caught.value.unsent) == len(caught.value.in_doubt) == 2
    assert caught.value.sequence_numbers == ()


async def test_section_4_invalid_schedule_arguments_raise_before_anything_is_sent(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(InvalidMessageError, match="it must have a time zone"):
            await sender.schedule(numbered(1), datetime(2030, 1, 1))  # noqa: DTZ001 - the point
        with pytest.raises(InvalidMessageError, match="messages is generator"):
            await sender.schedule((each for each in numbered(1)), LATER)  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match="a message is str"):
            await sender.schedule(["one"], LATER)  # type: ignore[list-item]
    assert await scheduled(local_pair) == {}


async def test_section_4_cancelling_an_unknown_sequence_number_raises(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        [number] = (await sender.schedule(numbered(1), LATER - timedelta(days=1))).sequence_numbers
        await sender.cancel_scheduled(number)
        with pytest.raises(ServiceError):
            await sender.cancel_scheduled(number)


class FakeSender:
    """A sender whose context only has what entering it needs."""

    def __init__(self, health: EntityHealth, *, ordered: bool = False) -> None:
        self.pings: list[str] = []
        self.looked_at: list[str] = []
        self.watched: list[str] = []
        self.applied: list[Any] = []

        async def refresh(_: str) -> EntityHealth:
            return health

        async def ping(entity: str) -> None:
            self.pings.append(entity)

        async def divert_behind_backlog(entity: str, *, spool: None) -> None:
            assert spool is None
            self.looked_at.append(entity)
            if self.store_error is not None:
                raise self.store_error

        self.store_error: Exception | None = None
        order = SimpleNamespace(divert_behind_backlog=divert_behind_backlog, check_spool=lambda: None)
        context: Any = SimpleNamespace(
            primary=SimpleNamespace(send_link=lambda _: self),
            registry=SimpleNamespace(
                refresh=refresh,
                apply=lambda entity, event: self.applied.append((entity, event)),
                watch=self.watched.append,
                unwatch=self.watched.remove,
            ),
            prober=SimpleNamespace(ping=ping),
            order=order if ordered else None,
            clock=ManualClock(),
            spool=None,
            unspooled_from=None,
            options=PairOptions(),
            owner=SimpleNamespace(check=lambda: None),
        )
        self.sender = PairSender("flights", context)
        self.cancelled: list[Any] = []

    async def cancel_scheduled(self, numbers: Any, *, timeout: float) -> None:
        self.cancelled.append((numbers, timeout))


@pytest.mark.parametrize(
    ("since", "last_ping", "pings"),
    [(-59, None, 0), (-60, None, 1), (-999, -59, 0), (-999, -60, 1), (-1, -100, 1)],
)
async def test_section_5_an_old_failover_is_confirmed_by_a_ping(
    since: float, last_ping: float | None, pings: int
) -> None:
    confirmed = None if last_ping is None else START + last_ping
    fake = FakeSender(EntityHealth(HealthState.FAILED_OVER, START + since, confirmed))
    await fake.sender.__aenter__()
    assert (fake.pings, fake.applied) == (["flights"] * pings, [])


@pytest.mark.parametrize("ordered", [False, True])
async def test_section_6_in_session_order_a_new_sender_looks_at_the_backlog(ordered: bool) -> None:
    fake = FakeSender(EntityHealth(), ordered=ordered)
    await fake.sender.__aenter__()
    assert (fake.looked_at, fake.pings, fake.watched) == (["flights"] * ordered, [], ["flights"])


async def test_section_6_a_sender_that_cannot_be_entered_watches_nothing() -> None:
    fake = FakeSender(EntityHealth(), ordered=True)
    fake.store_error = HealthStoreError("gone")
    with pytest.raises(HealthStoreError):
        await fake.sender.__aenter__()
    assert fake.watched == []


async def test_section_4_cancelling_takes_one_number_or_several_within_ten_seconds() -> None:
    fake = FakeSender(EntityHealth())
    await fake.sender.cancel_scheduled(5)
    await fake.sender.cancel_scheduled([1, 2], timeout=3)
    assert fake.cancelled == [([5], 10.0), ([1, 2], 3)]


@pytest.mark.parametrize("annotations", [None, {"x-opt-partition-key": "k"}])
def test_section_4_a_scheduled_message_is_a_copy_with_its_annotations(annotations: Any) -> None:
    message = AmqpMessage([b"x"], annotations=annotations)
    before = dict(message.annotations or {})
    copied = _with_schedule(message, LATER)
    time = {"TYPE": "TIMESTAMP", "VALUE": int(LATER.timestamp()) * 1000}
    assert copied.annotations == {**(annotations or {}), "x-opt-scheduled-enqueue-time": time}
    assert dict(message.annotations or {}) == before
