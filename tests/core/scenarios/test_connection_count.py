"""How many connections a process has open: one for each link (the figures of the limits page)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_pair.core import PairOptions
from tests.core.support.local_pair import LocalPair, open_local_pair

ENTITIES = [f"flights/{number}" for number in range(200)]
OPTIONS = PairOptions(backlog_queue_count=10, ping_primary_interval=timedelta(seconds=1))
LIMITS = Path(__file__).parents[3] / "provider" / "docs" / "limits.md"


def connections(made: LocalPair) -> tuple[int, int]:
    """Return the number of connections to the primary and to the secondary."""
    primary, secondary = (each._broker.connection_count for each in (made.primary, made.secondary))
    return primary, secondary


async def test_a_process_has_one_connection_for_each_entity_and_each_backlog_queue() -> None:
    async with open_local_pair(*ENTITIES, options=OPTIONS) as made, AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(made.pair.sender(entity)) for entity in ENTITIES]
        # A second sender of an entity uses the link of the first.
        senders.append(await stack.enter_async_context(made.pair.sender(ENTITIES[0].upper())))
        await asyncio.gather(*(sender.send(ServiceBusMessage("x")) for sender in senders))
        healthy = connections(made)
        for entity in ENTITIES:
            await made.pair.fail_over(entity, reason="test", hold=timedelta(minutes=5))
        await asyncio.gather(*(sender.send(ServiceBusMessage("x")) for sender in senders))
        failed_over = connections(made)
        await stack.aclose()
        closed = connections(made)
    assert healthy == (200, 0)
    assert failed_over == (200, 10)
    assert closed == failed_over, "links stay open until the pair is closed"
    assert "200 connections while all are healthy, and 210 while they are failed over" in LIMITS.read_text()


async def test_a_drain_adds_a_connection_for_each_backlog_queue_and_up_to_eight() -> None:
    most = 0
    async with open_local_pair(*ENTITIES[:20], options=replace(OPTIONS, backlog_queue_count=4)) as made:
        for entity in ENTITIES[:20]:
            await made.put_into_backlog(entity, [ServiceBusMessage("x", message_id=str(n)) for n in range(20)])
        before = connections(made)
        drain = asyncio.create_task(made.pair.syphon().drain())
        while not drain.done():
            await asyncio.sleep(0.01)
            primary, secondary = connections(made)
            most = max(most, secondary - before[1])
            assert primary <= 20
    assert drain.result().moved_total == 400
    assert 4 <= most <= 8


async def test_the_public_interface_of_the_sdk_shares_no_connection() -> None:
    """If this fails, the SDK has learned it: use one connection for all links, and change the limits page."""
    text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    async with ServiceBusClient.from_connection_string(text) as client:
        with pytest.raises(TypeError, match="multiple values for keyword argument 'connection'"):
            client.get_queue_sender("flights", connection=object())
        assert not client._connection_sharing, "private, and without effect but an error (7.15)"
