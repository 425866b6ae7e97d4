"""Managing a namespace's queues through the data-plane administration client (SPEC section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import EntityStatus, QueueProperties

from servicebus_pair.core.backlog import MAX_TIME_SPAN, QueueShape
from servicebus_pair.core.durations import format_duration
from servicebus_pair.core.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityExistsError,
    EntityNotFoundError,
    ServerBusyError,
    ServiceError,
)
from servicebus_pair.core.failures import classify, shown
from servicebus_pair.core.meter import Meter, Operation
from servicebus_pair.core.options import Endpoint

__all__ = ["Administration", "QueueDepth", "ServiceBusAdministration", "classify_http"]

_CALL_SECONDS: Final = 30.0
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How much one queue holds."""

    path: str
    active: int
    scheduled: int
    dead_lettered: int
    size_bytes: int


class Administration(Protocol):
    """What provisioning and monitoring need from a namespace's management interface."""

    async def queues(self) -> dict[str, QueueShape]:
        """Answer the shape of every queue, by path. :raises ServiceError: classified."""

    async def create_queue(self, path: str, shape: QueueShape) -> None:
        """Create one queue. :raises EntityExistsError: it is there already."""

    async def depths(self, prefix: str) -> list[QueueDepth]:
        """Answer the depth of every queue whose path begins with ``prefix``."""

    async def held(self, path: str) -> int:
        """Answer all that a queue holds: active, scheduled, deferred, dead-lettered, in transfer."""

    async def allow_sending(self, path: str, *, allowed: bool) -> None:
        """Set the queue's status to Active, or to SendDisabled."""

    async def delete_queue(self, path: str) -> None:
        """Delete one queue with all that it holds."""

    async def exists(self, path: str) -> bool:
        """Answer whether there is a queue or topic ``path``. :raises ServiceError: classified."""


class ServiceBusAdministration:
    """An :class:`Administration` over ``ServiceBusAdministrationClient``; an async context manager.

    Needs the Manage right. Every call ends within 30 s.

    :param meter: counts the calls; a listing of several pages counts as one.
    """

    def __init__(self, endpoint: Endpoint, *, meter: Meter | None = None) -> None:
        self._namespace = endpoint.namespace
        self._meter = Meter() if meter is None else meter
        self._client = _sdk_client(endpoint)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()

    async def queues(self) -> dict[str, QueueShape]:
        """Answer the shape of every queue, by path. :raises ServiceError: classified."""

        async def read() -> dict[str, QueueShape]:
            return {queue.name: _shape(queue) async for queue in self._client.list_queues()}

        return await self._bounded("list queues", read())

    async def create_queue(self, path: str, shape: QueueShape) -> None:
        """Create one queue. :raises EntityExistsError: it is there already."""
        creation = self._client.create_queue(
            path,
            max_size_in_megabytes=shape.max_size_in_megabytes,
            max_delivery_count=shape.max_delivery_count,
            lock_duration=shape.lock_duration,
            dead_lettering_on_message_expiration=shape.dead_lettering_on_message_expiration,
            enable_batched_operations=shape.enable_batched_operations,
            **_bounded_durations(shape),
        )
        await self._bounded(f"create queue {path}", creation)

    async def depths(self, prefix: str) -> list[QueueDepth]:
        """Answer the depth of every queue whose path begins with ``prefix``."""

        async def read() -> list[QueueDepth]:
            folded = prefix.casefold()
            return [
                QueueDepth(
                    path=queue.name,
                    active=queue.active_message_count or 0,
                    scheduled=queue.scheduled_message_count or 0,
                    dead_lettered=queue.dead_letter_message_count or 0,
                    size_bytes=queue.size_in_bytes or 0,
                )
                async for queue in self._client.list_queues_runtime_properties()
                if queue.name.casefold().startswith(folded)
            ]

        return await self._bounded("read the depth of queues", read())

    async def held(self, path: str) -> int:
        """Answer all that a queue holds: active, scheduled, deferred, dead-lettered, in transfer."""
        found = await self._bounded(f"count {path}", self._client.get_queue_runtime_properties(path))
        parts = (
            found.active_message_count,
            found.scheduled_message_count,
            found.dead_letter_message_count,
            found.transfer_message_count,
            found.transfer_dead_letter_message_count,
        )
        # Deferred messages are in the total only.
        return max(found.total_message_count or 0, sum(part or 0 for part in parts))

    async def allow_sending(self, path: str, *, allowed: bool) -> None:
        """Set the queue's status to Active, or to SendDisabled."""
        queue = await self._bounded(f"read {path}", self._client.get_queue(path))
        queue.status = EntityStatus.ACTIVE if allowed else EntityStatus.SEND_DISABLED
        # Left out when unbounded, which is the default, since the SDK (7.15) would round it up beyond the limit.
        for name in ("default_message_time_to_live", "auto_delete_on_idle"):
            if _duration(getattr(queue, name)) == MAX_TIME_SPAN:
                setattr(queue, name, None)
        await self._bounded(f"update {path}", self._client.update_queue(queue))

    async def delete_queue(self, path: str) -> None:
        """Delete one queue with all that it holds. :raises EntityNotFoundError: it is gone already."""
        await self._bounded(f"delete {path}", self._client.delete_queue(path))

    async def exists(self, path: str) -> bool:
        """Answer whether there is a queue or topic ``path``. :raises ServiceError: classified."""
        for kind, read in (("queue", self._client.get_queue), ("topic", self._client.get_topic)):
            try:
                await self._bounded(f"read {kind} {path}", read(path))
            except EntityNotFoundError:
                continue
            return True
        return False

    async def _bounded(self, doing: str, call: Awaitable[ResultT]) -> ResultT:
        self._meter.count(Operation.MANAGE)
        try:
            return await asyncio.wait_for(call, _CALL_SECONDS)
        except Exception as failure:
            raise classify_http(failure, f"{doing} on {self._namespace}") from failure


_BY_STATUS: Final[dict[int | None, type[ServiceError]]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    429: ServerBusyError,
    503: ServerBusyError,
}

_REFUSED: Final = (401, 403)


def classify_http(failure: Exception, where: str) -> ServiceError:
    """Answer the error that stands for a failure of a management call, by its HTTP status."""
    if isinstance(failure, ResourceExistsError):
        return EntityExistsError(f"{where}: it exists")
    if isinstance(failure, HttpResponseError) and failure.status_code in _BY_STATUS:
        right = " (the right Manage is needed)" if failure.status_code in _REFUSED else ""
        return _BY_STATUS[failure.status_code](f"{where}: HTTP {failure.status_code}{right}: {shown(failure)}")
    return classify(failure, where=where, authenticated=False)


def _sdk_client(endpoint: Endpoint) -> ServiceBusAdministrationClient:
    # Retrying is ours: a slow answer must not become four.
    settings: dict[str, Any] = {"retry_total": 0}
    if endpoint.emulator:
        settings["transport"] = _PlainHttpTransport()
    elif endpoint.ca_file is not None:
        settings["connection_verify"] = endpoint.ca_file
    if endpoint.connection_string is None:
        return ServiceBusAdministrationClient(endpoint.administration, endpoint.credential, **settings)
    text = endpoint.connection_string.reveal().replace(endpoint.host, endpoint.administration, 1)
    return ServiceBusAdministrationClient.from_connection_string(text, **settings)


class _PlainHttpTransport(AioHttpTransport):  # type: ignore[misc]  # exported as Any by azure.core
    """The administration client always writes https; the embedded namespace serves http."""

    async def send(self, request: Any, **settings: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **settings)


def _bounded_durations(shape: QueueShape) -> dict[str, Any]:
    """Leave out what is unbounded: it is the service's default, and the SDK (7.15) would round it up beyond it."""
    durations = {
        "default_message_time_to_live": shape.default_message_time_to_live,
        "auto_delete_on_idle": shape.auto_delete_on_idle,
    }
    return {name: value for name, value in durations.items() if value != MAX_TIME_SPAN}


def _shape(queue: QueueProperties) -> QueueShape:
    return QueueShape(
        max_size_in_megabytes=queue.max_size_in_megabytes or 0,
        max_delivery_count=queue.max_delivery_count or 0,
        default_message_time_to_live=_duration(queue.default_message_time_to_live),
        auto_delete_on_idle=_duration(queue.auto_delete_on_idle),
        lock_duration=_duration(queue.lock_duration),
        dead_lettering_on_message_expiration=bool(queue.dead_lettering_on_message_expiration),
        enable_batched_operations=bool(queue.enable_batched_operations),
        status=str(getattr(queue.status, "value", queue.status)),
    )


def _duration(value: Any) -> str:
    """ISO 8601; the SDK gives a timedelta, which rounds TimeSpan.MaxValue to a microsecond."""
    if isinstance(value, str):
        return value
    return MAX_TIME_SPAN if value.days >= _MAX_TIME_SPAN_DAYS else format_duration(value)


_MAX_TIME_SPAN_DAYS: Final = 10_675_199
