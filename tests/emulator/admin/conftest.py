from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from servicebus_emulator import HostedNamespace


@pytest.fixture
async def http(hosted: HostedNamespace) -> AsyncIterator[ClientSession]:
    """A client of the administration port that sends no token."""
    async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as session:
        yield session
