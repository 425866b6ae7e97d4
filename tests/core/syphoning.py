"""What the tests of the syphon share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import proton
from proton.utils import BlockingConnection

from servicebus_emulator import HostedNamespace
from servicebus_pair.core import DrainReport

__all__ = ["Watch", "put_raw"]


def put_raw(namespace: HostedNamespace, queue: str, *sent: proton.Message) -> None:
    """Over another AMQP client, which sends what the SDK would not."""
    connection = BlockingConnection(f"amqp://127.0.0.1:{namespace.amqp_port}", allowed_mechs="ANONYMOUS")
    sender = connection.create_sender(queue)
    for message in sent:
        sender.send(message)
    connection.close()


class Watch:
    """A progress callback to wait on."""

    def __init__(self) -> None:
        self.report = DrainReport()
        self._told = asyncio.Event()

    def __call__(self, report: DrainReport) -> None:
        self.report = report
        self._told.set()

    async def until(self, holds: Callable[[DrainReport], object]) -> None:
        while not holds(self.report):
            self._told.clear()
            await self._told.wait()
