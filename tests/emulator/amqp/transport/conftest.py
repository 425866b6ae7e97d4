from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.engine.model.descriptions import QueueDescription


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], timeouts=ClientTimeouts(greeting_seconds=0.4)) as emulator:
        served = emulator["contoso"]
        served.namespace.create_queue(QueueDescription("flights"))
        yield served
