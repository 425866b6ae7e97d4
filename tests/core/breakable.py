"""A pair in this process whose primary, an embedded namespace, breaks on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions, State
from servicebus_pair.core.events import Event, HealthChanged
from tests.core.peeking import peek_all
from tests.leaks import collect_leaks

__all__ = ["GRACE", "INTERVAL", "PING", "QUICK", "Breakable", "Recorder", "breakable_pair", "endpoint", "numbered"]

INTERVAL = 1.0
PING = 1.0
# SPEC section 4 and the issue: what a failover may take beyond its interval.
GRACE = 2.0
QUICK = PairOptions(
    failover_interval=timedelta(seconds=INTERVAL),
    ping_primary_interval=timedelta(seconds=PING),
    ping_timeout=timedelta(seconds=2),
    server_busy_delay=timedelta(seconds=0.5),
    backlog_queue_count=3,
)


class Recorder:
    """An observer of everything, above all of health."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: list[State] = []
        self.failed_over = asyncio.Event()
        self.healthy_again = asyncio.Event()
        self._told = asyncio.Event()

    def observe(self, event: Event) -> None:
        self.events.append(event)
        self._told.set()
        if isinstance(event, HealthChanged):
            self.states.append(event.after.state)
            if event.after.failed_over:
                self.failed_over.set()
            if event.before.failed_over:
                self.healthy_again.set()

    async def next_of(self, kind: type[Any]) -> None:
        """Wait until there is an event of this kind."""
        async with asyncio.timeout(5):
            while not self.of(kind):
                self._told.clear()
                await self._told.wait()

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(frozen=True)
class Breakable:
    """A pair of which either namespace can be broken, with its backlog provisioned and the queue ``flights``."""

    primary: HostedNamespace
    secondary: HostedNamespace
    pair: NamespacePair
    recorder: Recorder

    async def ids_on_the_primary(self, entity: str = "flights") -> list[str | None]:
        return [message.message_id for message in await peek_all(self.primary.connection_string, entity)]

    async def ids_in_the_backlog(self) -> list[str | None]:
        return await self.ids_in([f"contoso/x-servicebus-transfer/{index}" for index in range(3)])

    async def ids_in(self, queues: list[str]) -> list[str | None]:
        found = await asyncio.gather(*(peek_all(self.secondary.connection_string, queue) for queue in queues))
        return [message.message_id for held in found for message in held]


def endpoint(hosted: HostedNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        hosted.connection_string, namespace=hosted.name, administration=f"{hosted.host}:{hosted.admin_port}"
    )


def numbered(count: int, *, start: int = 0) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"body {n}", message_id=f"m{n}") for n in range(start, start + count)]


@asynccontextmanager
async def breakable_pair(
    *, observers: tuple[Any, ...] = (), store: Any = None, **changed: Any
) -> AsyncIterator[Breakable]:
    """Two namespaces in this loop, and a pair with short intervals; ``changed`` options differ from ``QUICK``."""
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        primary, secondary = emulator["contoso"], emulator["contoso-dr"]
        primary.namespace.create_queue(QueueDescription("flights"))
        recorder = Recorder()
        pair = NamespacePair(
            endpoint(primary),
            endpoint(secondary),
            replace(QUICK, **changed),
            observers=[recorder, *observers],
            store=store,
        )
        try:
            async with pair:
                await pair.provision()
                yield Breakable(primary, secondary, pair, recorder)
                primary.clear_faults()
                secondary.clear_faults()
        finally:
            collect_leaks()
