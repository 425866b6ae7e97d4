"""However a send ends, it says where each message is (SPEC section 4: the caller still has its message)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.errors import (
    InvalidMessageError,
    ObserverError,
    SendCancelledError,
    SendError,
    SendTimeoutError,
    account_of,
)
from servicebus_pair.core.events import Event, HealthChanged, MessagesAccepted
from tests.core.breakable import GRACE, INTERVAL, Breakable, breakable_pair, numbered

pytestmark = pytest.mark.simulated

BIG = 100_000
# Half a second is promised; a machine under load lags behind.
LAG = 1.0
LONG = timedelta(seconds=30)


def ids(messages: tuple[AmqpAnnotatedMessage, ...]) -> list[str]:
    return [str(message.properties.message_id) for message in messages]  # type: ignore[union-attr]


def big(count: int) -> list[ServiceBusMessage]:
    """Messages of which two fit one batch."""
    return [ServiceBusMessage(b"x" * BIG, message_id=f"m{n}") for n in range(count)]


class FullDisk:
    """An observer that cannot take note of the second batch, like a ledger on a full disk."""

    def __init__(self) -> None:
        self.batches = 0

    def observe(self, event: Event) -> None:
        if isinstance(event, MessagesAccepted):
            self.batches += 1
            if self.batches == 2:
                raise OSError(28, "No space left on device")


class Grumbler:
    """An observer that fails on every change of health."""

    def observe(self, event: Event) -> None:
        if isinstance(event, HealthChanged):
            raise RuntimeError("not again")  # noqa: TRY004 - no type is wrong here


async def test_section_4_a_deadline_that_is_too_short_raises_in_time_and_names_what_is_unsent() -> None:
    async with breakable_pair(failover_interval=LONG) as breakable, breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
        began = asyncio.get_running_loop().time()
        with pytest.raises(SendTimeoutError, match=r"within the 0\.8 s") as caught:
            await sender.send(numbered(5, start=1), timeout=0.8)
        took = asyncio.get_running_loop().time() - began
        assert 0.5 < took < 0.8 + LAG
        assert ids(caught.value.unsent) == ["m1", "m2", "m3", "m4", "m5"]
        assert caught.value.result.sent == 0
        assert not breakable.pair.health("flights").failed_over


async def test_section_4_a_deadline_in_the_middle_names_what_was_accepted_and_what_is_in_doubt() -> None:
    stored_but_silent = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights")
    async with breakable_pair(failover_interval=LONG) as breakable, breakable.pair.sender("flights") as sender:

        def stream() -> Iterator[ServiceBusMessage]:
            for number, message in enumerate(big(7)):
                # The first batch was handed out with the third message, and so on.
                if number == 4:
                    breakable.primary.set_fault(stored_but_silent)
                yield message

        source = stream()
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(source, timeout=1.5)
        error = caught.value
        assert error.result.primary_ids == ("m0", "m1")
        assert error.result.diverted_ids == ()
        assert ids(error.unsent) == ["m2", "m3", "m4"]
        assert ids(error.in_doubt) == ["m2", "m3"]
        # Accepted and in doubt are there, and nothing else is; the iterator stands where it stood.
        assert await breakable.ids_on_the_primary() == ["m0", "m1", "m2", "m3"]
        assert [message.message_id for message in source] == ["m5", "m6"]


async def test_section_4_what_a_collection_still_holds_is_unsent_too(breakable: Breakable) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(big(7), timeout=0.5)
    assert ids(caught.value.unsent) == [f"m{n}" for n in range(7)]


async def test_section_4_a_refusal_leaves_no_doubt(breakable: Breakable) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights"))
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
    assert ids(caught.value.unsent) == ["m0", "m1"]
    assert caught.value.in_doubt == ()
    assert await breakable.ids_on_the_primary() == []


async def test_section_4_a_connection_that_was_never_made_leaves_no_doubt(breakable: Breakable) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.REFUSE))
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(numbered(2), timeout=0.5)
    assert caught.value.in_doubt == ()


async def test_section_4_a_cancelled_send_says_what_was_accepted_what_is_in_doubt_and_what_is_unsent() -> None:
    async with breakable_pair(failover_interval=LONG) as breakable, breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=100))
        breakable.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights"))
        sending = asyncio.create_task(sender.send(big(5)))
        while len(await breakable.ids_on_the_primary()) < 3:
            assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await sending
        account = account_of(caught.value)
        assert isinstance(account, SendCancelledError)
        assert "5 unsent, 2 of them in doubt" in str(account)
        assert sending.cancelled()
        breakable.primary.clear_faults()
        # The state is defined: the sender goes on.
        assert (await sender.send(account.unsent)).primary == 5
    assert ids(account.unsent) == [f"m{n}" for n in range(5)]
    assert ids(account.in_doubt) == ["m0", "m1"]


async def test_section_4_a_timeout_around_a_send_carries_the_account_as_its_cause(breakable: Breakable) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.FREEZE))
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.3):
                await sender.send(numbered(3))
    account = account_of(caught.value)
    assert isinstance(account, SendCancelledError)
    assert ids(account.unsent) == ["m0", "m1", "m2"]


async def test_section_4_a_send_that_waits_behind_another_keeps_its_own_deadline(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights"))
        first = asyncio.create_task(sender.send(numbered(1, start=1)))
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(numbered(1, start=2), timeout=0.4)
        assert asyncio.get_running_loop().time() - began < 0.4 + LAG
        assert ids(caught.value.unsent) == ["m2"]
        assert (await first).diverted == 1


async def test_section_4_many_sends_that_find_the_outage_together_divert_together(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        began = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(sender.send(numbered(1, start=n)) for n in range(1, 31)))
        assert asyncio.get_running_loop().time() - began < INTERVAL + GRACE
    assert [result.diverted for result in results] == [1] * 30


@pytest.mark.parametrize("asynchronous", [False, True], ids=["iterator", "stream"])
async def test_section_4_an_iterable_of_the_caller_that_raises_loses_nothing_that_it_gave(
    breakable: Breakable, asynchronous: bool
) -> None:
    def rows() -> Iterator[ServiceBusMessage]:
        yield from big(4)
        raise RuntimeError("the file ended early")

    async def stream() -> AsyncIterator[ServiceBusMessage]:
        for row in rows():
            yield row

    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="the file ended early") as caught:
            await sender.send(stream() if asynchronous else rows())
    assert isinstance(caught.value.cause, RuntimeError)
    assert caught.value.result.primary_ids == ("m0", "m1")
    assert ids(caught.value.unsent) == ["m2", "m3"]
    assert caught.value.in_doubt == ()


async def test_section_4_the_rest_of_a_set_is_unsent_since_no_one_can_go_on_with_it(breakable: Breakable) -> None:
    messages = set(numbered(5))
    breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(messages, timeout=0.5)
    assert sorted(ids(caught.value.unsent)) == [f"m{n}" for n in range(5)]


async def test_section_4_the_same_message_given_twice_is_accounted_for_twice(breakable: Breakable) -> None:
    [message] = numbered(1)
    async with breakable.pair.sender("flights") as sender:
        breakable.pair.fail_over("flights", reason="test")
        assert (await sender.send([message, message])).diverted_ids == ("m0", "m0")
        breakable.pair.mark_healthy("flights")
        assert (await sender.send([message, message])).primary_ids == ("m0", "m0")


async def test_section_4_what_is_no_message_is_refused_before_anything_is_taken(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(InvalidMessageError, match="messages is int"):
            await sender.send(5)  # type: ignore[arg-type]
        with pytest.raises(SendError, match="a message is str") as caught:
            await sender.send([*numbered(1), "two"])  # type: ignore[list-item]
    assert ids(caught.value.unsent[:1]) == ["m0"]


async def test_section_9_a_ledger_that_cannot_write_ends_the_send_and_what_was_accepted_is_named() -> None:
    later = Grumbler(), FullDisk()
    async with breakable_pair(observers=later) as breakable, breakable.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="No space left") as caught:
            await sender.send(big(6))
        error = caught.value
        assert isinstance(error.cause, ObserverError)
        assert error.result.primary_ids == ("m0", "m1", "m2", "m3")
        assert ids(error.unsent) == ["m4", "m5"]
        assert error.in_doubt == ()
        assert await breakable.ids_on_the_primary() == ["m0", "m1", "m2", "m3"]
        # The observers after and before it were told.
        assert len(breakable.recorder.of(MessagesAccepted)) == 2


async def test_section_4_an_observer_that_fails_on_a_change_of_health_stops_no_failover() -> None:
    async with breakable_pair(observers=(Grumbler(),)) as breakable, breakable.pair.sender("flights") as sender:
        breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
        assert (await sender.send(numbered(3))).diverted == 3
        breakable.primary.clear_faults()
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 5)


async def test_section_4_a_failed_over_entity_gets_no_send_that_waited_for_its_turn(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=0.5))
        first = asyncio.create_task(sender.send(numbered(1, start=1)))
        second = asyncio.create_task(sender.send(numbered(1, start=2)))
        await asyncio.sleep(0.1)
        breakable.pair.fail_over("flights", reason="test")
        assert (await first).primary == 1
        assert (await second).diverted == 1
    assert await breakable.ids_on_the_primary() == ["m0", "m1"]


async def test_section_2_an_interval_of_zero_diverts_within_two_seconds_of_any_silence() -> None:
    async with breakable_pair(failover_interval=timedelta(0)) as breakable, breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.pair.fail_over("flights", reason="opens the link to the backlog")
        await sender.send(numbered(1))
        breakable.pair.mark_healthy("flights")
        breakable.primary.set_fault(Fault(kind=FaultKind.RELEASED, on=(Operation.SEND,)))
        began = asyncio.get_running_loop().time()
        assert (await sender.send(numbered(3, start=1))).diverted == 3
        assert asyncio.get_running_loop().time() - began < 2


async def test_section_5_messages_that_waited_for_the_backlog_go_to_the_primary_once_it_is_healthy(
    breakable: Breakable,
) -> None:
    async def stream() -> AsyncIterator[ServiceBusMessage]:
        for number, message in enumerate(big(9)):
            if number == 5:
                breakable.pair.mark_healthy("flights")
            yield message

    async with breakable.pair.sender("flights") as sender:
        breakable.pair.fail_over("flights", reason="test")
        result = await sender.send(stream())
    assert (result.primary, result.diverted) == (9, 0)
    assert await breakable.ids_on_the_primary() == [f"m{n}" for n in range(9)]
    assert await breakable.ids_in_the_backlog() == []
