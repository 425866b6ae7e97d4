from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.engine import EngineHarness, PersistentNamespace
from tests.emulator.support.sdk_client import SdkClient, connect_sdk
from tests.simulated_time import LoopFactories, loop_factories

_numbers = count(1)


def pytest_asyncio_loop_factories(item: pytest.Item) -> LoopFactories:
    return loop_factories(item)


@pytest.fixture
def harness() -> EngineHarness:
    return EngineHarness()


@pytest.fixture
def persistent(tmp_path: Path) -> PersistentNamespace:
    return PersistentNamespace(tmp_path / "data" / "contoso.sqlite")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def contoso() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"]) as emulator:
        yield emulator["contoso"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sdk(contoso: HostedNamespace) -> AsyncIterator[SdkClient]:
    async with connect_sdk(contoso) as opened:
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


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"]) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]
