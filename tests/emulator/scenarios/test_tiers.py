"""A namespace of a tier over the wire: what it says of itself, and that it is busy once its credits are spent."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from servicebus_emulator import Emulator
from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.namespace.tiers import Tier
from tests.emulator.support.manual_clock import ManualClock
from tests.emulator.support.sdk_client import connect_sdk

FLIGHTS = (QueueDescription("flights"),)


@pytest.mark.parametrize("throttle", [True, False])
async def test_a_throttled_namespace_is_busy_until_the_next_second(throttle: bool):
    clock = ManualClock()
    configs = [NamespaceConfig(name="contoso", queues=FLIGHTS, tier=Tier.STANDARD, throttle=throttle)]
    async with (
        Emulator(["contoso"], configs=configs, clock=clock) as emulator,
        connect_sdk(emulator["contoso"]) as sdk,
        sdk.queue("flights") as (sender, _),
    ):
        await sender.send_messages([ServiceBusMessage("x")] * 1000)
        if throttle:
            with pytest.raises(ServiceBusServerBusyError, match="50009"):
                await sender.send_messages(ServiceBusMessage("y"))
            clock.advance(1)
        await sender.send_messages(ServiceBusMessage("y"))
        assert emulator["contoso"].namespace.counts("flights").active == 1001


async def test_a_tier_of_the_configuration_comes_before_that_of_the_command_line():
    configs = [NamespaceConfig(name="contoso", tier=Tier.BASIC)]
    async with Emulator(["contoso", "fabrikam"], configs=configs, tier=Tier.PREMIUM, throttle=True) as emulator:
        assert [each.namespace.tier for each in emulator.namespaces] == [Tier.BASIC, Tier.PREMIUM]
        assert all(each.namespace.throttle is not None for each in emulator.namespaces)
