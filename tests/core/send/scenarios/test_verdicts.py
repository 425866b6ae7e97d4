"""A rejection is a verdict on the message, not on its entity or its backlog queue (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import HealthState
from servicebus_pair.core.model.errors import NoBacklogQueueError, RejectedError, SendError
from servicebus_pair.core.model.events import QueuePulled
from servicebus_pair.core.protocol import amqp_message
from tests.core.support.local_pair import FAILOVER_INTERVAL, FAILOVER_MARGIN, LocalPair, numbered

pytestmark = pytest.mark.simulated


@pytest.fixture(autouse=True)
def _unknown_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service reject what the sender does not know to be too large."""
    monkeypatch.setattr(amqp_message, "MAX_PROPERTY_BYTES", 2**30)


def poison(message_id: str = "poison") -> ServiceBusMessage:
    return ServiceBusMessage("x", message_id=message_id, application_properties={"large": "x" * 33 * 1024})


def ids(messages: Any) -> list[str]:
    return [str(message.message_id) for message in messages]


@pytest.mark.parametrize("position", [0, 2, 5])
@pytest.mark.parametrize("failed_over", [False, True])
async def test_section_4_everything_around_a_rejected_message_is_delivered(
    local_pair: LocalPair, position: int, failed_over: bool
) -> None:
    sent = numbered(5)
    sent.insert(position, poison())
    async with local_pair.pair.sender("flights") as sender:
        if failed_over:
            await local_pair.pair.fail_over("flights", reason="test")
        with pytest.raises(SendError) as caught:
            await sender.send(sent)
    error = caught.value
    assert isinstance(error.cause, RejectedError)
    [refused], [unsent] = error.refused, error.unsent
    assert refused is unsent is sent[position]
    assert error.in_doubt == ()
    assert error.result.message_ids == tuple(f"m{n}" for n in range(5))
    stored = await (local_pair.backlog_ids() if failed_over else local_pair.primary_ids())
    assert stored == [f"m{n}" for n in range(5)]
    assert local_pair.recorder.of(QueuePulled) == []
    if not failed_over:
        assert local_pair.recorder.states == []


async def test_section_4_a_rejected_message_alone_is_refused_when_a_ping_is_accepted(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(poison())
        assert ids(caught.value.refused) == ["poison"]
        assert (await sender.send(numbered(1))).primary == 1
    assert local_pair.recorder.states == []


@pytest.mark.fast_sdk  # without it, a link takes up to a second more to open and close
async def test_section_4_poison_among_good_traffic_neither_diverts_it_nor_takes_long(local_pair: LocalPair) -> None:
    loop = asyncio.get_running_loop()
    async with local_pair.pair.sender("flights") as bad, local_pair.pair.sender("flights") as good:
        done = asyncio.Event()

        async def traffic() -> int:
            diverted = 0
            while not done.is_set():
                diverted += (await good.send(numbered(1))).diverted
                await asyncio.sleep(0.05)
            return diverted

        running = asyncio.create_task(traffic())
        began = loop.time()
        for _ in range(3):
            with pytest.raises(SendError):
                await bad.send(poison())
        assert loop.time() - began < 6
        done.set()
        assert await running == 0
    assert local_pair.recorder.states == []


async def test_section_4_several_poisons_in_a_stream_are_all_named(local_pair: LocalPair) -> None:
    def stream() -> Iterator[ServiceBusMessage]:
        for number in range(300):
            yield poison(f"p{number}") if number % 100 == 50 else ServiceBusMessage("x", message_id=f"m{number}")

    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(
            SendError, match="297 messages on the primary, 0 in the backlog, 3 unsent, 0 of them in doubt and 3 refused"
        ) as caught:
            await sender.send(stream())
    assert ids(caught.value.refused) == ["p50", "p150", "p250"]
    assert len(await local_pair.primary_ids()) == 297


@pytest.mark.fast_sdk  # without it, a link takes up to a second more to open and close
async def test_section_4_an_entity_that_rejects_everything_is_an_outage(local_pair: LocalPair) -> None:
    loop = asyncio.get_running_loop()
    async with local_pair.pair.sender("flights") as sender:
        local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
        began = loop.time()
        assert (await sender.send(numbered(20))).diverted == 20
        assert loop.time() - began < FAILOVER_INTERVAL + FAILOVER_MARGIN
    assert local_pair.recorder.states == [HealthState.SUSPECT, HealthState.FAILED_OVER]


async def test_section_4_backlog_queues_that_reject_everything_but_take_links_are_each_tried(
    local_pair: LocalPair,
) -> None:
    """A message is refused only after two queues rejected it; a queue that takes no link is pulled."""
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        local_pair.secondary.set_fault(
            Fault(kind=FaultKind.INTERNAL_ERROR, entity="contoso/x-servicebus-transfer/*", on=())
        )
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
        assert not isinstance(caught.value, NoBacklogQueueError)
        assert (ids(caught.value.unsent), ids(caught.value.in_doubt)) == (["m0", "m1"], [])
        local_pair.secondary.clear_faults()
        assert (await sender.send(numbered(2))).diverted == 2
