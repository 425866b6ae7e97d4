"""The SDK over real sockets, without its delays.

Closing a link of the asynchronous SDK takes up to a second, in which it waits for its keep-alive task. Links are
therefore closed in the background, and the last ones at the end of the test session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from servicebus_emulator import HostedNamespace


async def open_link(handler: ServiceBusSender | ServiceBusReceiver) -> None:
    """Attach a link as ``async with handler`` does, within five seconds."""
    await asyncio.wait_for(handler.__aenter__(), timeout=5)


class SdkClient:
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
async def connect_sdk(hosted: HostedNamespace) -> AsyncIterator[SdkClient]:
    client = ServiceBusClient.from_connection_string(hosted.connection_string, retry_total=0)
    async with client:
        opened = SdkClient(client)
        yield opened
        await opened.wait_for_closed_links()


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def client_options(hosted: HostedNamespace) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return connection string and options of the SDK for each transport."""
    tls = {"connection_verify": str(hosted.ca_file)}
    there = {"custom_endpoint_address": hosted.endpoint_address}
    return {
        "in clear": (hosted.connection_string, {}),
        "TLS": (hosted.tls_connection_string, {**tls, **there, "transport_type": TransportType.Amqp}),
        "WebSocket": (hosted.connection_string, {**there, "transport_type": TransportType.AmqpOverWebsocket}),
        "WebSocket under TLS": (
            hosted.tls_connection_string,
            {**tls, **there, "transport_type": TransportType.AmqpOverWebsocket},
        ),
    }
