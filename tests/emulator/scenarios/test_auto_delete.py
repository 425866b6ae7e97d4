"""Auto-delete with the unmodified SDK and a manual clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from servicebus_emulator import Emulator
from tests.emulator.support.manual_clock import ManualClock
from tests.emulator.support.plain_http import PlainTransport
from tests.emulator.support.sdk_client import connect_sdk, open_link

pytestmark = pytest.mark.simulated
IDLE = timedelta(minutes=5)


async def test_a_queue_is_deleted_after_its_idle_time_without_receivers(caplog: pytest.LogCaptureFixture):
    clock = ManualClock()
    async with (
        Emulator(["contoso"], clock=clock) as emulator,
        connect_sdk(emulator["contoso"]) as sdk,
        ServiceBusAdministrationClient.from_connection_string(
            emulator["contoso"].admin_connection_string, transport=PlainTransport()
        ) as admin,
    ):
        await admin.create_queue("q", auto_delete_on_idle=IDLE)
        receiver = sdk.client.get_queue_receiver("q")
        await open_link(receiver)
        clock.advance(600)
        assert (await admin.get_queue("q")).auto_delete_on_idle == IDLE
        await receiver.close()
        clock.advance(299)
        peeking = sdk.client.get_queue_receiver("q")
        async with peeking:
            assert await peeking.peek_messages() == []
        clock.advance(299)
        await admin.get_queue("q")
        clock.advance(1)
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("q")
        # The SDK loses the 404 with which the token is refused.
        with pytest.raises(ServiceBusAuthenticationError):
            await open_link(sdk.client.get_queue_sender("q"))
        assert any("token refused: the messaging entity 'q' could not be found" in each for each in caplog.messages)
