"""Issue 3: auto-delete through the unmodified clients, on a clock of our own."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from servicebus_emulator import Emulator
from tests.emulator.clock import ManualClock
from tests.emulator.talk import open_link, talk
from tests.emulator.transport import PlainTransport

pytestmark = pytest.mark.simulated

IDLE = timedelta(minutes=5)


async def test_a_queue_lasts_as_long_as_somebody_receives_or_peeks_and_then_its_time():
    clock = ManualClock()
    async with (
        Emulator(["contoso"], clock=clock) as emulator,
        talk(emulator["contoso"]) as sdk,
        ServiceBusAdministrationClient.from_connection_string(
            emulator["contoso"].admin_connection_string, transport=PlainTransport()
        ) as admin,
    ):
        await admin.create_queue("q", auto_delete_on_idle=IDLE)
        receiver = sdk.client.get_queue_receiver("q")
        await open_link(receiver)
        clock.go_on(600)
        assert (await admin.get_queue("q")).auto_delete_on_idle == IDLE
        await receiver.close()
        clock.go_on(299)
        peeking = sdk.client.get_queue_receiver("q")
        async with peeking:
            assert await peeking.peek_messages() == []
        clock.go_on(299)
        await admin.get_queue("q")
        clock.go_on(1)
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("q")
        with pytest.raises(MessagingEntityNotFoundError):
            await open_link(sdk.client.get_queue_sender("q"))
