"""How many connections a process has open: one for each link (the figures of the limits page)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

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


async def settled(made: LocalPair, primary: int) -> tuple[int, int]:
    """Return the number of connections, once the primary has as many as expected: closing takes a moment."""
    async with asyncio.timeout(5):
        while connections(made)[0] != primary:  # noqa: ASYNC110 - connections have no event
            await asyncio.sleep(0.01)
    return connections(made)


# In real time, a busy machine takes longer to open 200 connections than a send waits before it prepares to divert.
@pytest.mark.simulated
async def test_a_process_keeps_a_bounded_number_of_connections_to_each_namespace() -> None:
    async with open_local_pair(*ENTITIES, options=OPTIONS) as made, AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(made.pair.sender(entity)) for entity in ENTITIES]
        # A second sender of an entity uses the link of the first.
        senders.append(await stack.enter_async_context(made.pair.sender(ENTITIES[0].upper())))
        await asyncio.gather(*(sender.send(ServiceBusMessage("x")) for sender in senders))
        healthy = await settled(made, 100)
        results = await asyncio.gather(*(sender.send(ServiceBusMessage("x")) for sender in senders))
        again = await settled(made, 100)
        for entity in ENTITIES:
            await made.pair.fail_over(entity, reason="test", hold=timedelta(minutes=5))
        await asyncio.gather(*(sender.send(ServiceBusMessage("x")) for sender in senders))
        failed_over = connections(made)
    assert healthy == again == (100, 0)
    assert [result.primary for result in results] == [1] * 201, "a closed connection is opened again without a failure"
    assert failed_over == (100, 10)
    assert "100 connections are left while all are healthy, and 110 while they\nare failed over" in LIMITS.read_text()


async def test_idle_connections_are_closed_the_one_used_longest_ago_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_local_pair(*ENTITIES[:4], options=replace(OPTIONS, max_idle_connections=2)) as made,
        AsyncExitStack() as stack,
    ):
        senders = [await stack.enter_async_context(made.pair.sender(entity)) for entity in ENTITIES[:4]]
        opened: list[Any] = []
        accept = made.primary._broker.add_connection

        def count(connection: Any) -> None:
            opened.append(connection)
            accept(connection)

        monkeypatch.setattr(made.primary._broker, "add_connection", count)
        counts = []
        for index in (0, 1, 0, 2, 0, 3, 0, 1):
            await senders[index].send(ServiceBusMessage("x"))
            counts.append(len(opened))
        assert await settled(made, 2) == (2, 0)
    assert counts == [1, 2, 2, 3, 3, 4, 4, 5], "the entity that is used all the time keeps its connection"
    warnings = [record.getMessage() for record in caplog.records if "max_idle_connections=2" in record.getMessage()]
    assert len(warnings) == 1


@pytest.mark.simulated
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
