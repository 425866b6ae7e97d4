"""Fixtures: two namespaces as processes, and a pair over two namespaces in this process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest

from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.sdk._private.capabilities import PATH_VARIABLE, fast_path
from tests.core.support.local_pair import FAILOVER_INTERVAL, LocalPair, open_quick_pair
from tests.simulated_time import LoopFactories, loop_factories
from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes


def pytest_asyncio_loop_factories(item: pytest.Item) -> LoopFactories:
    return loop_factories(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(PATH_VARIABLE) == "public":
        for item in items:
            if item.get_closest_marker("fast_sdk") is not None:
                item.add_marker(pytest.mark.skip(reason=f"{PATH_VARIABLE}=public"))


@pytest.fixture(params=["fast", "decode", "public"])
def sdk_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test on every way into azure-servicebus."""
    monkeypatch.setenv(PATH_VARIABLE, request.param)
    fast_path.cache_clear()
    assert fast_path() is (request.param != "public")
    yield request.param
    fast_path.cache_clear()


@pytest.fixture
def decoding_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let syphons decode what they move, unless the public interface is selected for all tests."""
    if os.environ.get(PATH_VARIABLE) != "public":
        monkeypatch.setenv(PATH_VARIABLE, "decode")


@pytest.fixture
def public_sdk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the public interface of azure-servicebus only."""
    monkeypatch.setenv(PATH_VARIABLE, "public")
    fast_path.cache_clear()
    yield
    fast_path.cache_clear()


@dataclass(frozen=True)
class TwoNamespaces:
    """The primary ``contoso`` and the secondary ``contoso-dr``, running."""

    primary: Namespace
    secondary: Namespace
    processes: Processes

    def endpoint(self, namespace: Namespace) -> Endpoint:
        return Endpoint.from_connection_string(
            namespace.connection_string,
            namespace=namespace.name,
            administration=namespace.administration,
        )

    def pair(self, options: PairOptions | None = None, **more: Any) -> NamespacePair:
        """A pair with short intervals, so that a test does not wait for the defaults."""
        quick = PairOptions(
            failover_interval=timedelta(seconds=FAILOVER_INTERVAL),
            ping_primary_interval=timedelta(seconds=1),
            backlog_queue_count=3,
        )
        return NamespacePair(
            self.endpoint(self.primary),
            self.endpoint(self.secondary),
            quick if options is None else options,
            **more,
        )

    def kill(self, namespace: Namespace) -> None:
        self.processes.kill(namespace.process)

    def freeze(self, namespace: Namespace) -> None:
        """Its kernel still responds, the process does not."""
        self.processes.signal(namespace.process, SIGSTOP)

    def thaw(self, namespace: Namespace) -> None:
        self.processes.signal(namespace.process, SIGCONT)

    def start(self, namespace: Namespace) -> None:
        namespace.start(self.processes)


@pytest.fixture(scope="session")
def ports() -> PortReservation:
    return PortReservation()


@pytest.fixture
def namespaces(tmp_path: Path, ports: PortReservation) -> Iterator[TwoNamespaces]:
    processes = Processes(record=tmp_path / "pids.json", logs=tmp_path)
    try:
        both = TwoNamespaces(
            Namespace.on_free_ports(PRIMARY, home=tmp_path, ports=ports),
            Namespace.on_free_ports(SECONDARY, home=tmp_path, ports=ports),
            processes,
        )
        both.start(both.primary)
        both.start(both.secondary)
        yield both
    finally:
        processes.stop()


@pytest.fixture
async def local_pair() -> AsyncIterator[LocalPair]:
    """A pair over two namespaces in this process, for injecting faults."""
    async with open_quick_pair() as made:
        yield made
