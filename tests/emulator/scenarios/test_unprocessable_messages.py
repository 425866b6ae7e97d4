"""Messages that the service cannot digest are rejected, alone or with their whole batch (EMULATOR.md section 5).

The service reports most of them as an internal error, which a client takes for a fault of the entity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.sdk_client import SdkClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

KILOBYTE = 1024
UNPROCESSABLE = (
    "The service was unable to process the request; please retry the operation and contact support if the problem "
    "persists.*Error condition: amqp:internal-error"
)
TOO_LARGE = r"\(65536\).*Error condition: amqp:link:message-size-exceeded"


def with_properties(**sizes: int) -> ServiceBusMessage:
    return ServiceBusMessage("x", application_properties={name: "x" * size for name, size in sizes.items()})


class Case(NamedTuple):
    """A message, and what its client sees."""

    make: Callable[[], ServiceBusMessage]
    error: type[ServiceBusError] = ServiceBusError
    text: str = UNPROCESSABLE


CASES = {
    "property over 32 KB": Case(lambda: with_properties(p=33 * KILOBYTE)),
    "properties over 64 KB": Case(
        lambda: with_properties(a=30 * KILOBYTE, b=30 * KILOBYTE, c=10 * KILOBYTE), MessageSizeExceededError, TOO_LARGE
    ),
    "time to live of 0": Case(lambda: ServiceBusMessage("x", time_to_live=timedelta())),
    # The SDK truncates to seconds.
    "time to live below 1 s": Case(lambda: ServiceBusMessage("x", time_to_live=timedelta(milliseconds=999))),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_such_a_message_is_rejected_alone_in_a_batch_and_scheduled(
    contoso: HostedNamespace, sdk: SdkClient, queue: str, case: Case
):
    later = datetime.now(UTC) + timedelta(hours=1)
    good = ServiceBusMessage("x")
    refused = [[case.make()], [case.make(), good, good], [good, case.make(), good], [good, good, case.make()]]

    async def check(sender: ServiceBusSender, messages: list[ServiceBusMessage]) -> None:
        for send in (sender.send_messages(messages), sender.schedule_messages(messages, later)):
            with pytest.raises(ServiceBusError, match=case.text) as caught:
                await send
            assert type(caught.value) is case.error

    # At once, because the client pauses after each error.
    async with sdk.opened(*(sdk.client.get_queue_sender(queue) for _ in refused)) as senders:
        await asyncio.gather(*map(check, senders, refused))
        assert contoso.namespace.counts(queue).total == 0
        await senders[0].send_messages(good)
        await senders[0].schedule_messages(good, later)
        assert contoso.namespace.counts(queue).total == 2


async def test_a_batch_of_more_than_4500_messages_is_rejected(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("large-batches", max_message_size_in_kilobytes=1024))
    async with sdk.queue("large-batches") as (sender, _):
        batch = await sender.create_message_batch()
        for _ in range(4500):
            batch.add_message(ServiceBusMessage("x"))
        await sender.send_messages(batch)
        assert contoso.namespace.counts("large-batches").active == 4500
        batch.add_message(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusError, match=UNPROCESSABLE) as caught:
            await sender.send_messages(batch)
        assert type(caught.value) is ServiceBusError
        assert contoso.namespace.counts("large-batches").active == 4500
