"""The official client over real sockets, without its waiting.

Closing a link of the asynchronous client takes up to a second, in which it waits for its own keep-alive
task. Links are therefore closed beside the tests that follow, and all are closed when the session of tests ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from servicebus_emulator import HostedNamespace


async def open_link(handler: ServiceBusSender | ServiceBusReceiver) -> None:
    """Attach a link as ``async with handler`` does, within five seconds."""
    await asyncio.wait_for(handler.__aenter__(), timeout=5)


class Talk:
    """Senders and receivers of one namespace."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.client = client
        self._closing: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def opened(self, *handlers: ServiceBusSender | ServiceBusReceiver) -> AsyncIterator[tuple[Any, ...]]:
        """Open links, and begin to close them in the end."""
        try:
            await asyncio.gather(*(open_link(handler) for handler in handlers))
            yield handlers
        finally:
            self._closing += [asyncio.ensure_future(handler.close()) for handler in handlers]

    @asynccontextmanager
    async def queue(self, path: str, **options: Any) -> AsyncIterator[tuple[ServiceBusSender, ServiceBusReceiver]]:
        """Open a sender and a receiver of one queue."""
        sender = self.client.get_queue_sender(path)
        receiver = self.client.get_queue_receiver(path, max_wait_time=2, **options)
        async with self.opened(sender, receiver):
            yield sender, receiver

    async def wait_for_closed_links(self) -> None:
        """Wait until all links are closed."""
        await asyncio.gather(*self._closing)


@asynccontextmanager
async def talk(hosted: HostedNamespace) -> AsyncIterator[Talk]:
    client = ServiceBusClient.from_connection_string(hosted.connection_string, retry_total=0)
    async with client:
        opened = Talk(client)
        yield opened
        await opened.wait_for_closed_links()


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
