"""The public interface of azure-servicebus over a namespace in memory.

Errors are made by the SDK's own table from what the service would say. What a fault looks like was measured
(EMULATOR.md section 2): some calls ignore their timeout, an interrupted receive returns nothing, and a lost answer
leaves open whether the operation was carried out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from math import inf
from typing import Any, Self
from unittest.mock import patch

from azure.servicebus import ServiceBusSubQueue

from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_pair.core.model.errors import UnreachableError
from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.pair import backlog_management
from servicebus_pair.core.sdk import entity_lookup, message_batch, namespace_client, receive_link, send_link
from servicebus_pair.core.sdk._private.capabilities import PATH_VARIABLE, fast_path
from servicebus_pair.core.sdk.administration import QueueDepth
from tests.simulation.faults import Operation
from tests.simulation.link import LATENCY
from tests.simulation.receiver import Receiver, SessionBrowser
from tests.simulation.sender import Sender, send_preencoded
from tests.simulation.service import Service


@contextmanager
def replaced_sdk(services: dict[str, Service], *, preencoded: bool = False) -> Iterator[None]:
    """Let clients of the pair connect to services by the first label of their host.

    Only the public interface of the SDK is offered, so the pair must not use its inside. A receive that does so waits
    in short steps, to be stopped in between; here it waits at once, as idle receives are most of a year.

    :param preencoded: the pair encodes messages itself, as on the versions of the SDK that it was tested with.
    """
    with ExitStack() as stack:
        if preencoded:
            for module in (message_batch, send_link):
                stack.enter_context(patch.object(module, "fast_path", lambda: True))
            stack.enter_context(patch.object(send_link, "patch_sender", lambda _: None))
            stack.enter_context(patch.object(send_link, "send_preencoded", send_preencoded))
        stack.enter_context(_public_sdk(services))
        yield


@contextmanager
def _public_sdk(services: dict[str, Service]) -> Iterator[None]:
    administrations = _Administrations(services)
    with (
        patch.object(namespace_client, "ServiceBusClient", _Clients(services)),
        patch.object(namespace_client, "shared_ssl_context", lambda *_, **__: None),
        patch.object(entity_lookup, "administration_for", administrations),
        patch.object(backlog_management, "administration_for", administrations),
        patch.dict(os.environ, {PATH_VARIABLE: "public"}),
        patch.object(receive_link, "_PUBLIC_WAIT", inf),
    ):
        fast_path.cache_clear()
        try:
            yield
        finally:
            fast_path.cache_clear()


class _Clients:
    """In place of the class ``azure.servicebus.aio.ServiceBusClient``."""

    def __init__(self, services: dict[str, Service]) -> None:
        self._services = services

    def from_connection_string(self, connection_string: str, **_: Any) -> _Client:
        host = connection_string.partition("sb://")[2]
        return _Client(self._services[host.partition(".")[0]])


class _Client:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None:
        """Nothing is left to close."""

    def get_queue_sender(self, path: str, **_: Any) -> Sender:
        return Sender(self._service, path)

    get_topic_sender = get_queue_sender

    def get_queue_receiver(self, path: str, **options: Any) -> Receiver:
        return Receiver(
            self._service,
            path,
            dead_letter=options.get("sub_queue") in {ServiceBusSubQueue.DEAD_LETTER, "deadletter"},
            session_id=options.get("session_id"),
            max_wait_time=options.get("max_wait_time"),
        )

    async def list_queue_sessions(self, path: str, *, timeout: float) -> AsyncIterator[str]:
        async with SessionBrowser(self._service, path) as browser:
            for session_id in await browser.list_sessions(timeout=timeout):
                yield session_id


class _Administrations:
    """In place of ``administration_for``: the SDK's client would ask the network."""

    def __init__(self, services: dict[str, Service]) -> None:
        self._services = services

    def __call__(self, endpoint: Endpoint, **_: Any) -> _Administration:
        return _Administration(self._services[endpoint.host.partition(".")[0]])


class _Administration(AbstractAsyncContextManager["_Administration"]):
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __aexit__(self, *_: object) -> None:
        """Nothing is left to close."""

    async def entity_exists(self, path: str) -> bool:
        await self._answer(path)
        try:
            self._service.entity(path)
        except EntityNotFound:
            return False
        return True

    async def queue_depths(self, *prefixes: str) -> list[QueueDepth]:
        await self._answer("")  # of no entity
        counts = {
            queue.path: self._service.entity(queue.path).counts()
            for queue in self._service.namespace.list_queues()
            if queue.path.casefold().startswith(tuple(prefix.casefold() for prefix in prefixes))
        }
        return [
            QueueDepth(path, each.active, each.scheduled, each.dead_lettered, size_bytes=0)
            for path, each in counts.items()
        ]

    async def _answer(self, path: str) -> None:
        service = self._service
        await asyncio.sleep(service.random.uniform(*LATENCY))
        if service.faults.strike(Operation.MANAGE, path, service.loop.time()) is not None:
            raise UnreachableError("the administration did not answer")
