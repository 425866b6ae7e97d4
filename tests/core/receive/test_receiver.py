"""Receiving under a lock, at least once, and waiting while the primary is down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import proton
import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_pair.core.errors import ConfigurationError, EntityNotFoundError, UnreachableError
from servicebus_pair.core.events import Pinged
from servicebus_pair.core.pair.namespace_pair import NamespacePair
from servicebus_pair.core.receive.receiver import NEXT_SESSION, InboundMessage
from servicebus_pair.core.sdk._private.capabilities import fast_path
from tests.core.support.local_pair import LocalPair, numbered, open_local_pair, open_quick_pair
from tests.core.support.queues import peek_all, send_raw

pytestmark = pytest.mark.simulated
# The delivery count of a message that was returned: the public interface of the SDK can only abandon it.
RETURNED = 0 if fast_path() else 1


def ids(messages: Sequence[InboundMessage]) -> list[str]:
    return [message.fields["message_id"] for message in messages]


async def send(pair: NamespacePair, *messages: ServiceBusMessage, entity: str = "flights") -> None:
    async with pair.sender(entity) as sender:
        await sender.send(list(messages))


@asynccontextmanager
async def short_locks() -> AsyncIterator[LocalPair]:
    """A pair with a queue whose locks last 5 s, the shortest that the service allows."""
    async with open_quick_pair() as local:
        local.primary.namespace.create_queue(QueueDescription("brief", lock_duration=TimeSpan.parse("PT5S")))
        yield local


async def test_a_message_is_gone_once_completed_and_comes_back_otherwise(sdk_path: str) -> None:
    async with open_quick_pair() as local:
        await send(local.pair, *numbered(5))
        async with local.pair.receiver("flights") as receiver:
            taken = await receiver.receive(max_messages=4)
            assert ids(taken) == ["m0", "m1", "m2", "m3"]
            assert taken[0].fields["body"] == "body 0"
            assert taken[0].fields["broker"]["sequence_number"] == 1
            assert await receiver.complete(taken[:1]) == 0
            assert await receiver.abandon(taken[1:2]) == 0
            assert await receiver.dead_letter(taken[2:3], reason="Odd", description="it is odd") == 0

        left = await peek_all(local.primary.connection_string, "flights")
        dead = await peek_all(local.primary.connection_string, "flights", dead_letter=True)
        assert [message.message_id for message in left] == ["m1", "m3", "m4"]
        assert [(each.message_id, each.dead_letter_reason) for each in dead] == [("m2", "Odd")]
        assert [message.delivery_count for message in left] == ([1, 1, 0] if sdk_path == "public" else [1, 0, 0])
        async with local.pair.receiver("flights", dead_letter=True) as receiver:
            [message] = await receiver.receive()
            assert message.fields["broker"]["dead_letter_reason"] == "Odd"
            assert await receiver.complete([message]) == 0


@pytest.mark.parametrize("sessions", [False, True])
async def test_locks_are_renewed_while_a_receive_waits(sessions: bool) -> None:
    async with short_locks() as local:
        local.primary.namespace.create_queue(
            QueueDescription("seats", lock_duration=TimeSpan.parse("PT5S"), requires_session=True)
        )
        entity = "seats" if sessions else "brief"
        await send(local.pair, *(ServiceBusMessage(str(n), session_id="N1") for n in range(3)), entity=entity)
        session = NEXT_SESSION if sessions else None
        async with local.pair.receiver(entity, session_id=session) as receiver:
            taken = await receiver.receive(max_messages=3, linger=0.3)
            assert await receiver.receive(max_wait=60) == []
            assert await receiver.complete(taken) == 0

        async with local.pair.receiver(entity, session_id=session) as receiver:
            assert await receiver.receive(max_wait=10) == []


async def test_one_session_after_the_other() -> None:
    async with open_quick_pair() as local:
        local.primary.namespace.create_queue(QueueDescription("seats", requires_session=True))
        for session in ("a", "b"):
            messages = [ServiceBusMessage("x", message_id=f"{session}{n}", session_id=session) for n in range(2)]
            await send(local.pair, *messages, entity="seats")
        async with local.pair.receiver("seats", session_id=NEXT_SESSION) as receiver:
            seen = []
            while taken := await receiver.receive(max_messages=10, max_wait=8):
                assert await receiver.complete(taken) == 0
                seen.append(ids(taken))
        assert seen == [["a0", "a1"], ["b0", "b1"]]


async def test_only_wanted_properties_are_taken_and_the_others_come_back() -> None:
    async with open_quick_pair() as local:
        carriers = ["UA", "AA", "UA", "DL"]
        await send(
            local.pair,
            *(
                ServiceBusMessage(c, message_id=f"{c}{i}", application_properties={"c": c})
                for i, c in enumerate(carriers)
            ),
        )
        async with local.pair.receiver("flights") as receiver:
            taken = await receiver.receive(max_messages=4, max_wait=3, linger=1, properties={"c": "UA"})
            assert await receiver.complete(taken) == 0
        assert ids(taken) == ["UA0", "UA2"]
        left = await peek_all(local.primary.connection_string, "flights")
        assert {message.message_id: message.delivery_count for message in left} == {"AA1": RETURNED, "DL3": RETURNED}


@pytest.mark.fast_sdk
@pytest.mark.real_time
async def test_what_cannot_be_read_is_dead_lettered_and_pings_are_skipped() -> None:
    async with open_local_pair("flights", unchecked=True) as local:
        bad = proton.Message(id="bad", body="x", properties={"value": proton.char("z")})
        await asyncio.to_thread(send_raw, local.primary, "flights", bad)
        assert await local.pair.ping("flights")
        await send(local.pair, *numbered(1))
        async with local.pair.receiver("flights") as receiver:
            taken = await receiver.receive(max_messages=3, linger=1)
            assert ids(taken) == ["m0"]
            assert await receiver.complete(taken) == 0
        assert await peek_all(local.primary.connection_string, "flights") == []
        async with local.pair.receiver("flights", dead_letter=True) as receiver:
            assert await receiver.receive(max_wait=2) == []  # it stays where it is


OUTAGES = {
    "refuse": Fault(kind=FaultKind.REFUSE),
    "reset": Fault(kind=FaultKind.RESET, on=(Operation.OPEN_RECEIVER, Operation.OPEN_SENDER, Operation.SEND)),
    "internal error": Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.OPEN_RECEIVER, Operation.SEND)),
}


@pytest.mark.parametrize("name", OUTAGES)
async def test_in_an_outage_it_waits_with_one_line_and_goes_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="servicebus_pair.core.receive")
    async with open_quick_pair() as local, local.pair.receiver("flights") as receiver:
        await send(local.pair, *numbered(1))
        assert await receiver.complete(await receiver.receive()) == 0
        waiting = asyncio.create_task(receiver.receive(max_wait=90))
        await asyncio.sleep(1)
        local.primary.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE,), count=1))
        await send(local.pair, *numbered(1, start=1))
        local.primary.set_fault(OUTAGES[name])
        await asyncio.sleep(120)
        pings = len(local.recorder.of(Pinged))
        assert not waiting.done()  # what the outage takes is not counted
        assert len([each for each in caplog.records if "receiving waits" in each.getMessage()]) == 1
        assert 50 <= pings <= 130  # one each second, the interval of this pair: no busy loop
        local.primary.clear_faults()
        taken = await waiting
        assert ids(taken) == ["m1"]
        assert await receiver.complete(taken) == 0
        assert [each.getMessage() for each in caplog.records if "goes on" in each.message]


async def test_a_cancelled_receive_gives_back_what_is_held_at_once() -> None:
    async with open_quick_pair() as local:
        await send(local.pair, *numbered(1))
        receiver = local.pair.receiver("flights")

        async def hold() -> None:
            async with receiver:
                await receiver.receive()
                await receiver.receive()

        holding = asyncio.create_task(hold())
        await asyncio.sleep(2)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        async with local.pair.receiver("flights") as other:
            [again] = await other.receive(max_wait=5)
            assert again.fields["broker"]["delivery_count"] == RETURNED


async def test_what_waiting_cannot_help_is_raised() -> None:
    async with open_quick_pair() as local:
        async with local.pair.receiver("missing") as receiver:
            with pytest.raises(EntityNotFoundError):
                await receiver.receive()
        local.primary.set_fault(Fault(kind=FaultKind.REFUSE))
        async with local.pair.receiver("flights") as receiver:
            with pytest.raises(UnreachableError):
                await receiver.receive(wait_for_primary=False)
        with pytest.raises(ConfigurationError, match="entity is ''"):
            local.pair.receiver("")
        with pytest.raises(ConfigurationError, match="dead letters have no sessions"):
            local.pair.receiver("flights", session_id="a", dead_letter=True)


async def test_a_completion_that_was_not_confirmed_is_counted_and_the_message_comes_again() -> None:
    async with short_locks() as local:
        await send(local.pair, *numbered(1), entity="brief")
        async with local.pair.receiver("brief") as receiver:
            taken = await receiver.receive()
            local.primary.set_fault(Fault(kind=FaultKind.RESET, count=1, on=(Operation.SETTLE,)))
            assert await receiver.complete(taken) == 1
            again = await receiver.receive(max_wait=30)
            assert ids(again) == ids(taken) == ["m0"]
