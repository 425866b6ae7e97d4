"""Sessions with the unmodified asynchronous SDK."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.timespan import TimeSpan
from tests.emulator.support.sdk_client import SdkClient, bodies, open_link

pytestmark = pytest.mark.asyncio(loop_scope="session")
_numbers = count(1)


@pytest.fixture
def queue(contoso: HostedNamespace) -> str:
    return contoso.namespace.create_queue(QueueDescription(f"tails/{next(_numbers)}", requires_session=True)).path


def message(text: str, session_id: str) -> ServiceBusMessage:
    return ServiceBusMessage(text, session_id=session_id)


async def test_one_session_is_received_by_its_id(contoso: HostedNamespace, sdk: SdkClient, queue: str):
    async with sdk.queue(queue, session_id="N1") as (sender, receiver):
        await sender.send_messages([message("a", "N1"), message("x", "N2"), message("b", "N1")])
        received = await receiver.receive_messages(2, max_wait_time=2)
        assert bodies(received) == ["a", "b"]
        await receiver.session.set_state(b"half way")
        assert bytes(await receiver.session.get_state()) == b"half way"
        until = receiver.session.locked_until_utc
        await asyncio.sleep(0.01)
        assert await receiver.session.renew_lock() > until
        for each in received:
            await receiver.complete_message(each)
        assert contoso.namespace.counts(queue).active == 1
        other = sdk.client.get_queue_receiver(queue, session_id="N1")
        with pytest.raises(SessionCannotBeLockedError):
            await open_link(other)


async def test_the_next_available_session_is_granted(sdk: SdkClient, queue: str):
    sender = sdk.client.get_queue_sender(queue)
    receiver = sdk.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10)
    async with sdk.opened(sender):
        waiting = asyncio.create_task(open_link(receiver))
        await sender.send_messages(message("a", "N7"))
        await waiting
        assert receiver.session.session_id == "N7"
        assert bodies(await receiver.receive_messages(1, max_wait_time=2)) == ["a"]
        await receiver.close()


async def test_a_wait_for_any_session_ends_at_the_clients_timeout(sdk: SdkClient, queue: str):
    receiver = sdk.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
    with pytest.raises(OperationTimeoutError):
        await open_link(receiver)


async def test_a_session_is_lost_when_its_lock_expires(contoso: HostedNamespace, sdk: SdkClient):
    second = TimeSpan.of(timedelta(seconds=1))
    contoso.namespace.create_queue(QueueDescription("short-sessions", requires_session=True, lock_duration=second))
    async with sdk.queue("short-sessions", session_id="N1") as (sender, receiver):
        await sender.send_messages(message("a", "N1"))
        (received,) = await receiver.receive_messages(1, max_wait_time=0.5)
        with pytest.raises(SessionLockLostError):
            await receiver.receive_messages(1, max_wait_time=2)
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(received)
    assert contoso.namespace.find("short-sessions").main.peek(1, limit=1)[0].delivery_count == 1


async def test_session_queues_and_receivers_must_match(contoso: HostedNamespace, sdk: SdkClient, queue: str):
    contoso.namespace.create_queue(QueueDescription("no-sessions"))
    receivers = [sdk.client.get_queue_receiver(queue), sdk.client.get_queue_receiver("no-sessions", session_id="s")]
    refusals = await asyncio.gather(*map(open_link, receivers), return_exceptions=True)
    assert [("amqp:not-allowed" in str(refusal), type(refusal)) for refusal in refusals] == [
        (True, ServiceBusError)
    ] * 2
    async with sdk.opened(sdk.client.get_queue_sender(queue)) as (sender,):
        with pytest.raises(ServiceBusError, match="has no session id"):
            await sender.send_messages(ServiceBusMessage("x"))


async def test_sessions_are_listed_page_by_page(sdk: SdkClient, queue: str):
    names = [f"tail {number:03}" for number in range(250)]
    async with sdk.opened(sdk.client.get_queue_sender(queue)) as (sender,):
        await sender.send_messages([message("x", name) for name in reversed(names)])
    assert [name async for name in sdk.client.list_queue_sessions(queue)] == names


async def test_sessions_are_listed_by_the_time_of_their_state(contoso: HostedNamespace, sdk: SdkClient, queue: str):
    before = datetime.now(UTC) - timedelta(seconds=1)
    async with sdk.queue(queue, session_id="N1") as (sender, receiver):
        await sender.send_messages(message("a", "N2"))
        await receiver.session.set_state("half way")
    listed = [name async for name in sdk.client.list_queue_sessions(queue, state_updated_after=before)]
    assert listed == ["N1"]
    assert [name async for name in sdk.client.list_queue_sessions(queue)] == ["N1", "N2"]
    contoso.namespace.create_queue(QueueDescription(f"plain/{queue}"))
    with pytest.raises(ServiceBusError, match="does not require sessions"):
        _ = [name async for name in sdk.client.list_queue_sessions(f"plain/{queue}")]


async def test_a_partition_key_is_kept(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("partitioned", enable_partitioning=True))
    async with sdk.queue("partitioned") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("a", partition_key="AA"))
        await sender.schedule_messages(ServiceBusMessage("b", partition_key="UA"), datetime.now(UTC))
        received = await receiver.receive_messages(2, max_wait_time=2)
        assert [(str(each), each.partition_key) for each in received] == [("a", "AA"), ("b", "UA")]
