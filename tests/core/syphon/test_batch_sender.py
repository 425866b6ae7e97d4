"""Sending a batch of backlog entries, and isolating refused messages (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    RejectedError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
    UndeliverableError,
)
from servicebus_pair.core.model.events import MessagesSyphoned
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry
from servicebus_pair.core.syphon.batch_sender import BatchSender, DrainCounters, LocksExpiringError
from tests.core.support.fake_transport import EPOCH, FakeDestination, drain_context


class Sending:
    """A batch sender for the queue ``q``, and the entries to be sent to ``flights``."""

    def __init__(self, *sent: ServiceBusMessage, send_before: float = 36.0, **more: Any) -> None:
        self.context, transport, self.events = drain_context(**more)
        self.clock = transport.clock
        self.destination: FakeDestination = transport.entities["flights"]
        self.counters = DrainCounters()
        self.dead: list[tuple[str, str]] = []
        self.sender = BatchSender(self.context, "q", counters=self.counters, dead_letter=self._dead_letter)
        self.entries: dict[int, BacklogEntry] = {}
        self.add(*sent, send_before=send_before)

    def add(self, *sent: ServiceBusMessage, send_before: float) -> None:
        entries = [entry(message, EPOCH + send_before + n) for n, message in enumerate(sent)]
        self.entries |= {id(each.message): each for each in entries}

    async def _dead_letter(self, refused: BacklogEntry, error: UndeliverableError) -> None:
        self.dead.append((refused.received.message_id or "", error.reason))

    async def send(self) -> None:
        await self.sender.send(self.destination, self.entries)

    @property
    def sizes(self) -> list[int]:
        return [len(ids) for ids, _ in self.destination.attempts]


def entry(message: ServiceBusMessage, send_before: float) -> BacklogEntry:
    received: Any = SimpleNamespace(message_id=message.message_id, sequence_number=hash(message.message_id))
    return BacklogEntry("flights", received, to_amqp_message(message), send_before)


def numbered(count: int, *, body: str = "x") -> list[ServiceBusMessage]:
    return [ServiceBusMessage(body, message_id=f"m{n}") for n in range(count)]


async def test_section_6_sent_entries_are_confirmed_counted_and_reported() -> None:
    sending = Sending(*numbered(2), ServiceBusMessage("x" * 500, message_id="large"))
    assert sending.sender.recent_max_bytes == 1
    await sending.send()
    assert [each.received.message_id for each in sending.sender.confirmed] == ["m0", "m1", "large"]
    assert (sending.entries, sending.counters.moved, sending.counters.done) == ({}, {"flights": 3}, 3)
    [event] = sending.events
    assert isinstance(event, MessagesSyphoned)
    assert (event.entity, event.queue, event.at) == ("flights", "q", EPOCH)
    assert sending.sender.recent_max_bytes == max(ref.size_bytes for ref in event.messages) > 500


@pytest.mark.parametrize(("refused", "sizes"), [(0, [5, 3, 2, 1, 1, 1, 2]), (2, [5, 3, 2, 1, 2]), (4, [5, 3, 2, 1, 1])])
async def test_section_6_a_refused_batch_is_halved_until_the_message_is_alone(refused: int, sizes: list[int]) -> None:
    sending = Sending(*numbered(5))
    sending.destination.refuse = lambda ids: RefusedError("no") if f"m{refused}" in ids else None
    await sending.send()
    assert sending.dead == [(f"m{refused}", "Refused")]
    assert sending.destination.ids == [f"m{n}" for n in range(5) if n != refused]
    assert (sending.sizes, sending.entries, sending.counters.moved["flights"]) == (sizes, {}, 4)


@pytest.mark.parametrize("pings", [True, False])
@pytest.mark.parametrize("rejected", [0, 2, 4])
async def test_section_4_a_message_rejected_eight_times_alone_is_dead_lettered_if_the_entity_accepts_others(
    rejected: int, pings: bool
) -> None:
    sending = Sending(*numbered(5), pings=pings)
    sending.destination.refuse = lambda ids: RejectedError("internal") if f"m{rejected}" in ids else None
    await sending.send()
    alone = [ids for ids, _ in sending.destination.attempts if ids == [f"m{rejected}"]]
    assert (len(alone), sending.dead) == (8, [(f"m{rejected}", "Rejected")])
    assert sending.destination.ids == [f"m{n}" for n in range(5) if n != rejected]
    assert (sending.destination.pings, sending.destination.reopened) == ((7, 0) if pings else (0, 7))
    assert (sending.entries, sending.counters.duplicates_possible) == ({}, 0)


async def test_section_4_a_message_that_is_accepted_at_the_last_attempt_is_delivered() -> None:
    sending, rejections = Sending(*numbered(1)), iter(range(7))
    sending.destination.refuse = lambda ids: (
        RejectedError("internal") if ids and next(rejections, None) is not None else None
    )
    await sending.send()
    assert (sending.destination.ids, sending.dead, sending.counters.moved) == (["m0"], [], {"flights": 1})


@pytest.mark.parametrize("error", [RejectedError("internal"), TimedOutError("t")])
async def test_section_4_if_a_ping_fails_too_a_rejection_is_an_outage_of_the_entity(error: ServiceError) -> None:
    sending = Sending(*numbered(4))
    sending.destination.refuse = lambda ids: RejectedError("internal") if ids else error
    with pytest.raises(type(error)):
        await sending.send()
    assert (sending.sizes, sending.destination.pings, sending.dead) == ([4, 2, 1], 1, [])
    assert (len(sending.entries), sending.counters.duplicates_possible) == (4, 0)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
async def test_section_6_internal_errors_at_random_dead_letter_no_good_message(share: float) -> None:
    """An error that may pass is no verdict (SPEC section 6): what is not sent now is sent later."""
    random, pinged = Random(1), 0  # noqa: S311 - a plan that can be repeated
    for _ in range(400):
        sending = Sending(*numbered(4))
        sending.destination.refuse = lambda _: RejectedError("internal") if random.random() < share else None
        with suppress(RejectedError):
            await sending.send()
        assert sending.dead == []
        pinged += sending.destination.pings
    assert pinged > 40


async def test_section_6_a_verdict_that_takes_longer_than_a_lock_goes_on_when_the_message_comes_again() -> None:
    sending, rounds = Sending(*numbered(1), send_before=4), 0
    sending.destination.refuse = lambda ids: RejectedError("internal") if ids else None
    while not sending.dead:
        rounds += 1
        with suppress(LocksExpiringError):
            await sending.send()
        sending.entries.clear()
        sending.add(*numbered(1), send_before=sending.clock.time - EPOCH + 4)
    assert (sending.dead, rounds) == ([("m0", "Rejected")], 2)
    # What was known is forgotten.
    assert not sending.context.rejections


async def test_section_6_a_ping_that_fails_in_between_begins_the_verdict_anew() -> None:
    sending, pings = Sending(*numbered(1)), iter(range(6))
    sending.destination.refuse = lambda ids: RejectedError("internal") if ids or next(pings, None) is None else None
    with pytest.raises(RejectedError):
        await sending.send()
    assert (sending.dead, len(sending.entries), sending.context.rejections) == ([], 1, {})


async def test_section_2_a_send_that_timed_out_doubles_the_time_of_the_next_up_to_half_a_lock() -> None:
    sending, latency = Sending(*numbered(2), send_before=36), 12.0
    started = sending.context.clock.now()

    def late(_: object) -> TimedOutError | None:
        timeout = sending.destination.attempts[-1][1]
        sending.clock.time += min(latency, timeout)
        return TimedOutError("late") if latency > timeout else None

    sending.destination.refuse = late
    with pytest.raises(TimedOutError):
        await sending.send()
    await sending.send()
    assert [timeout for _, timeout in sending.destination.attempts] == [10, 20]
    assert (sending.entries, sending.counters.duplicates_possible) == ({}, 2)
    sending.add(*numbered(1), send_before=sending.clock.time - started + 19)
    with pytest.raises(LocksExpiringError):
        await sending.send()
    assert len(sending.destination.attempts) == 2, "too little time remains of the lock"
    latency = 9.0
    sending.entries.clear()
    sending.add(*numbered(1), send_before=sending.clock.time - started + 36)
    await sending.send()
    assert sending.context.attempts.current("flights") == 18, "a confirmation came within half of the time"


@pytest.mark.parametrize(("error", "sizes"), [(RefusedError, [4, 3, 1]), (MessageTooLargeError, [4, 2, 2])])
async def test_section_4_only_a_refused_batch_of_several_sessions_is_split_by_session(
    error: type[Exception], sizes: list[int]
) -> None:
    sending = Sending(*numbered(4))
    sending.destination.refuse = lambda ids: error("mixed") if len(ids) == 4 else None
    sending.destination.parts = lambda batch: [
        part for parts in (batch.messages[:3], batch.messages[3:]) for part in batch.repack(parts)
    ]
    await sending.send()
    assert (sending.sizes, len(sending.destination.ids), sending.dead) == (sizes, 4, [])


async def test_section_6_messages_that_fit_no_batch_are_dead_lettered_and_the_others_fill_batches() -> None:
    bad = ServiceBusMessage("x", message_id="bad", application_properties={"count": 2**40})
    large = ServiceBusMessage("x" * 5_000, message_id="large")
    sending = Sending(bad, *numbered(5, body="x" * 300), large)
    sending.destination.limit = 1_000
    await sending.send()
    assert sending.dead == [("bad", "InvalidMessage"), ("large", "MessageTooLarge")]
    assert (sending.destination.ids, sending.sizes) == ([f"m{n}" for n in range(5)], [2, 2, 1])


@pytest.mark.parametrize(
    ("error", "duplicates"),
    [
        (TimedOutError("t"), 3),
        (ServerBusyError("b"), 0),
        (InvalidMessageError("the handler was shut down under the send"), 0),
        (asyncio.CancelledError(), 3),
    ],
)
async def test_section_6_messages_that_may_be_stored_are_possible_duplicates(
    error: BaseException, duplicates: int
) -> None:
    sending = Sending(*numbered(3))
    sending.counters.duplicates_possible = 2
    sending.destination.refuse = lambda _: error
    with pytest.raises(type(error)):
        await sending.send()
    assert (sending.counters.duplicates_possible, len(sending.entries)) == (2 + duplicates, 3)
    assert (sending.sender.confirmed, sending.dead) == ([], [])


@pytest.mark.parametrize(("lock", "timeout"), [(36.0, 10.0), (4.0, 4.0), (0.5, 0.5)])
async def test_section_6_a_send_ends_before_the_first_lock(lock: float, timeout: float) -> None:
    sending = Sending(*numbered(3), send_before=lock)
    await sending.send()
    assert sending.destination.attempts[0][1] == pytest.approx(timeout)


async def test_section_6_no_send_starts_within_half_a_second_of_the_lock() -> None:
    sending = Sending(*numbered(1), send_before=0.49)
    with pytest.raises(LocksExpiringError):
        await sending.send()
    assert sending.destination.attempts == []


def test_section_6_counters_are_reported_as_a_copy() -> None:
    counters = DrainCounters(duplicates_possible=1, left=2, failures={"q": "gone"})
    counters.moved["flights"] += 3
    counters.dead_lettered["Refused"] += 4
    report = counters.report()
    counters.moved["flights"] += 1
    assert (counters.done, report.moved, report.dead_lettered) == (8, {"flights": 3}, {"Refused": 4})
    assert (report.left, report.duplicates_possible, report.failures) == (2, 1, {"q": "gone"})
