from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.proton_client import Peer, connected


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], open=True) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


@pytest.fixture
async def peer(hosted: HostedNamespace) -> AsyncIterator[Peer]:
    async with connected(hosted) as opened:
        yield opened
