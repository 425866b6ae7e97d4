"""The sender of the simulated SDK."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

from servicebus_emulator.engine.model.errors import EntityDisabled
from servicebus_emulator.engine.queue.limits import max_batch_bytes, max_message_bytes
from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage
from tests.simulation.faults import Operation
from tests.simulation.link import Link

# The place of the data in a message in the SDK's internal form.
_DATA: Final = 5


class Sender(Link):
    _max_message_size_on_link = 0

    def _attach(self) -> None:
        entity = self._service.entity(self._path)
        status = entity.description.status
        if not status.accepts_sends:
            raise EntityDisabled(f"{self._path!r} has status {status.value}")
        self._entity = entity
        self._max_message_size_on_link = max_message_bytes(entity.description)
        self._attached = self._service.incarnation

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        await self._ensure_attached()
        entity = self._entity
        assert entity is not None
        return ServiceBusMessageBatch(max_size_in_bytes or max_batch_bytes(entity.description))

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        await self.send_encoded(_encoded(message), timeout=timeout)

    async def send_encoded(self, encoded: Sequence[bytes], *, timeout: float | None) -> None:
        await self._ensure_attached()
        await self._exchange(
            Operation.SEND, lambda: self._service.send(self._attached_entity(), encoded), timeout=timeout
        )

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        await self._ensure_attached()
        given = messages if isinstance(messages, list) else [messages]
        for each in given:
            each.scheduled_enqueue_time_utc = schedule_time_utc
        encoded = [part for each in given for part in _encoded(each)]
        return await self._exchange(
            Operation.MANAGE, lambda: self._service.schedule(self._attached_entity(), encoded), timeout=timeout
        )

    async def cancel_scheduled_messages(self, sequence_numbers: Any, *, timeout: float | None = None) -> None:
        await self._ensure_attached()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        await self._exchange(Operation.MANAGE, lambda: self._attached_entity().cancel(numbers), timeout=timeout)


async def send_preencoded(sender: Sender, message: EncodedMessage | list[Any], *, timeout: float) -> None:
    """In place of the function that gives the SDK an encoded message, or a batch in its internal form."""
    parts = [message.encoded] if isinstance(message, EncodedMessage) else message[_DATA]
    await sender.send_encoded([bytes(each) for each in parts], timeout=timeout)


def _encoded(message: Any) -> Sequence[bytes]:
    if isinstance(message, ServiceBusMessageBatch):
        return [bytes(each) for each in message._message[_DATA]]
    if isinstance(message, list):
        return [part for each in message for part in _encoded(each)]
    annotated = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    output = bytearray()
    encode_payload(output, PyamqpTransportAsync.to_outgoing_amqp_message(annotated))
    return [bytes(output)]
