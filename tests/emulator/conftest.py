from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest
import pytest_asyncio

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.descriptions import QueueDescription
from tests.emulator.broker import Bench
from tests.emulator.talk import Talk, talk
from tests.simulated import LoopFactories, loop_of

_numbers = count(1)


def pytest_asyncio_loop_factories(item: pytest.Item) -> LoopFactories:
    return loop_of(item)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def contoso() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"]) as emulator:
        yield emulator["contoso"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sdk(contoso: HostedNamespace) -> AsyncIterator[Talk]:
    async with talk(contoso) as opened:
        yield opened


@pytest.fixture
def queue(contoso: HostedNamespace) -> str:
    """The path of a new queue."""
    return contoso.namespace.create_queue(QueueDescription(f"flights/{next(_numbers)}")).path


@pytest_asyncio.fixture
async def broken() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"]) as emulator:
        hosted = emulator["contoso"]
        for path in ("flights", "calm"):
            hosted.namespace.create_queue(QueueDescription(path))
        yield hosted
        hosted.clear_faults()
