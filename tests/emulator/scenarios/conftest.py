from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from servicebus_emulator import HostedNamespace
from tests.emulator.support.impatient_client import client_of
from tests.emulator.support.plain_http import PlainTransport


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def admin(contoso: HostedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(
        contoso.admin_connection_string, transport=PlainTransport()
    ) as client:
        yield client


@pytest_asyncio.fixture
async def client(broken: HostedNamespace) -> AsyncIterator[ServiceBusClient]:
    """The client without retries of the namespace with faults."""
    async with client_of(broken) as client:
        yield client
