from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.mgmt.servicebus.aio import ServiceBusManagementClient

from servicebus_emulator import Emulator, HostedNamespace
from tests.emulator.support.arm_client import managed


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(["contoso", "fabrikam"]) as emulator:
        yield emulator


@pytest.fixture
def contoso(emulator: Emulator) -> HostedNamespace:
    return emulator["contoso"]


@pytest.fixture
async def arm(emulator: Emulator) -> AsyncIterator[ServiceBusManagementClient]:
    async with managed(emulator) as client:
        yield client
