"""Sending a batch of backlog entries, and isolating refused messages (SPEC section 6)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    ServerBusyError,
    TimedOutError,
    UndeliverableError,
)
from servicebus_pair.core.model.events import MessagesSyphoned
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry
from servicebus_pair.core.syphon.batch_sender import BatchSender, DrainCounters, LocksExpiringError
from tests.core.support.fake_transport import EPOCH, FakeDestination, drain_context


class Sending:
    """A batch sender for the queue ``q``, and the entries to be sent to ``flights``."""

    def __init__(self, *sent: ServiceBusMessage, send_before: float = 36.0) -> None:
        self.context, transport, self.events = drain_context()
        self.destination: FakeDestination = transport.entities["flights"]
        self.counters = DrainCounters()
        self.dead: list[tuple[str, str]] = []
        self.sender = BatchSender(self.context, "q", counters=self.counters, dead_letter=self._dead_letter)
        entries = [entry(message, EPOCH + send_before + n) for n, message in enumerate(sent)]
        self.entries = {id(each.message): each for each in entries}

    async def _dead_letter(self, refused: BacklogEntry, error: UndeliverableError) -> None:
        self.dead.append((refused.received.message_id or "", error.reason))

    async def send(self) -> None:
        await self.sender.send(self.destination, self.entries)

    @property
    def sizes(self) -> list[int]:
        return [len(ids) for ids, _ in self.destination.attempts]


def entry(message: ServiceBusMessage, send_before: float) -> BacklogEntry:
    received: Any = SimpleNamespace(message_id=message.message_id)
    return BacklogEntry("flights", received, message.raw_amqp_message, send_before)


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


@pytest.mark.parametrize(("error", "sizes"), [(RefusedError, [4, 3, 1]), (MessageTooLargeError, [4, 2, 2])])
async def test_section_4_only_a_refused_batch_of_several_sessions_is_split_by_session(
    error: type[Exception], sizes: list[int]
) -> None:
    sending = Sending(*numbered(4))
    sending.destination.refuse = lambda ids: error("mixed") if len(ids) == 4 else None
    sending.destination.parts = lambda batch: [
        ([], part) for parts in (batch.messages[:3], batch.messages[3:]) for part in batch.repack(parts)
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
