"""Two embedded namespaces, each a separate process, and backlogs to drain from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace
from servicebus_pair.core import Endpoint
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.backlog_queues import BACKLOG_QUEUE, backlog_queue_paths
from servicebus_pair.core.sdk._private.sender_patches import send_preencoded
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from tests.benchmarks.core.baseline import QUEUE, endpoint

QUEUES: Final = 10
_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The endpoints of primary and secondary, and the processes behind them."""

    primary: Endpoint
    secondary: Endpoint
    served: tuple[RemoteNamespace, RemoteNamespace]

    def delay(self, round_trip: float) -> None:
        """Add a round-trip time in seconds to every conversation; 0 removes it."""
        for namespace in self.served:
            namespace.clear_faults()
            if round_trip > 0:
                namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=round_trip))


@asynccontextmanager
async def namespaces(*, durable: bool = False) -> AsyncIterator[Namespaces]:
    """Serve both namespaces with their queues, in memory or from temporary folders."""
    with ExitStack() as stack:
        served: list[RemoteNamespace] = []
        for name, queues in (("contoso", (QUEUE,)), ("contoso-dr", backlog_queue_paths("contoso", QUEUES))):
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-"))) if durable else None
            process = EmulatorProcess([name], data=folder, log_level="ERROR")
            served.append(stack.enter_context(process)[name])
            async with ServiceBusAdministration(endpoint(served[-1])) as administration:
                for queue in queues:
                    await administration.create_queue(queue, BACKLOG_QUEUE)
        primary, secondary = served
        yield Namespaces(endpoint(primary), endpoint(secondary), (primary, secondary))


def client(namespace: Endpoint) -> ServiceBusClient:
    assert namespace.connection_string is not None
    return ServiceBusClient.from_connection_string(namespace.connection_string.reveal())


async def fill(secondary: Endpoint, count: int, *, body_bytes: int = 200, queues: int = QUEUES) -> None:
    """Put messages for :data:`QUEUE` into backlog queues, evenly."""
    async with client(secondary) as opened:
        for number, queue in enumerate(backlog_queue_paths("contoso", queues)):
            async with opened.get_queue_sender(queue) as sender:
                limit = (await sender.create_message_batch()).max_size_in_bytes
                for batch in _batches(limit, range(number, count, queues), body_bytes=body_bytes):
                    encoded = batch.encoded_form
                    assert encoded is not None
                    await send_preencoded(sender, encoded, timeout=_TIMEOUT)
                    await asyncio.sleep(0)


def _batches(limit: int, numbers: Sequence[int], *, body_bytes: int) -> Iterator[EncodedBatch]:
    batch = EncodedBatch(limit)
    for number in numbers:
        wrapped = _wrapped(number, body_bytes)
        if not batch.try_add(wrapped):
            yield batch
            batch = EncodedBatch(limit)
            batch.try_add(wrapped)
    if len(batch) > 0:
        yield batch


def _wrapped(number: int, body_bytes: int) -> AmqpMessage:
    return wrap(new_message(b"x" * body_bytes, message_id=f"m{number}"), entity=QUEUE)
