"""Deferred messages are received by nobody else, and removed by sequence number with one request for many."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.received_message import MessageState
from tests.core.support.local_pair import endpoint

TIMEOUT = 5.0


@pytest.mark.parametrize("session_id", [None, "s"])
async def test_deferred_messages_are_removed_by_number_and_no_others(session_id: str | None) -> None:
    async with Emulator(["contoso"]) as emulator:
        namespace = emulator["contoso"]
        namespace.namespace.create_queue(QueueDescription("q", requires_session=session_id is not None))
        client = NamespaceClient(endpoint(namespace))
        try:
            send = client.send_link("q")
            for _ in range(6):
                await send.send_ping(to_amqp_message(ServiceBusMessage("x", session_id=session_id)), timeout=TIMEOUT)
            link = client.receive_link("q") if session_id is None else client.session_link("q", wait=1.0)
            received = await link.receive(max_messages=4, max_wait_time=TIMEOUT, timeout=TIMEOUT)
            while len(received) < 4:
                more = await link.receive(max_messages=4 - len(received), max_wait_time=TIMEOUT, timeout=TIMEOUT)
                received += more
            assert await link.defer(received, timeout=TIMEOUT) == [None] * 4
            numbers = [message.sequence_number for message in received]
            states = [each.state for each in await link.peek(max_messages=10, timeout=TIMEOUT)]
            assert states == [MessageState.DEFERRED] * 4 + [MessageState.ACTIVE] * 2

            before = client.meter.read().receives
            assert not await link.remove_deferred([*numbers[:2], 99], timeout=TIMEOUT), "one is not there"
            assert await link.remove_deferred(numbers[:3], timeout=TIMEOUT)
            assert client.meter.read().receives - before == 6
            left = [(each.sequence_number, each.state) for each in await link.peek(max_messages=10, timeout=TIMEOUT)]
            expected = [(numbers[3], MessageState.DEFERRED), (5, MessageState.ACTIVE), (6, MessageState.ACTIVE)]
            assert left == expected
            (following,) = await link.receive(max_messages=1, max_wait_time=TIMEOUT, timeout=TIMEOUT)
            assert following.sequence_number == 5, "a deferred message is received by its number only"

            assert await link.receive_deferred([numbers[3], 99], timeout=TIMEOUT) is None, "one is not there"
            locked = await link.receive_deferred([numbers[3]], timeout=TIMEOUT)
            assert locked is not None
            assert await link.receive_deferred([numbers[3]], timeout=TIMEOUT) is None, "it is locked"
            assert await link.dead_letter(locked[0], reason="r", description="d", timeout=TIMEOUT) is None
            (dead,) = await client.receive_link("q/$DeadLetterQueue").peek(max_messages=9, timeout=TIMEOUT)
            assert (dead.sequence_number, dead.dead_letter_reason) == (numbers[3], "r")
        finally:
            await client.close()
