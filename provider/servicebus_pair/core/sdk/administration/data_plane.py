"""Managing queues through the data-plane administration client (SPEC section 3)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import EntityStatus, QueueProperties

from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityExistsError,
    EntityNotFoundError,
    InvalidMessageError,
    ServerBusyError,
    ServiceError,
    ServiceFaultError,
)
from servicebus_pair.core.model.logs import guard_library_logs
from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.model.usage_meter import Meter, Operation
from servicebus_pair.core.protocol.backlog_queues import MAX_TIME_SPAN, QueueSettings
from servicebus_pair.core.protocol.iso_duration import format_duration
from servicebus_pair.core.sdk.error_mapping import classify, error_text, hide_secrets
from servicebus_pair.core.sdk.http.guarded_transport import GuardedTransport, bounded_call

_CALL_TIMEOUT: Final = 30.0
_MAX_TIME_SPAN_DAYS: Final = 10_675_199
# As of JSON.
_MAX_COUNT: Final = 2**53
_SUBSCRIPTION: Final = re.compile(r"(?P<topic>.+)/subscriptions/(?P<name>[^/]+)", re.IGNORECASE)
_MANAGE_REQUIRED: Final = (401, 403)
_BY_STATUS: Final[dict[int | None, type[ServiceError]]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    429: ServerBusyError,
    503: ServerBusyError,
}

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Message counts and size of one queue."""

    path: str
    active: int
    scheduled: int
    dead_lettered: int
    size_bytes: int


class Administration(Protocol):
    """The management operations that provisioning and monitoring use. Each raises a classified ``ServiceError``."""

    async def list_queues(self) -> dict[str, QueueSettings]:
        """Return the settings of every queue, by path."""

    async def create_queue(self, path: str, settings: QueueSettings) -> None:
        """Create one queue. :raises EntityExistsError: it exists."""

    async def queue_depths(self, *prefixes: str) -> list[QueueDepth]:
        """Return the depth of every queue whose path begins with one of ``prefixes``, from one listing."""

    async def message_count(self, path: str) -> int:
        """Return the number of all messages of a queue: active, scheduled, deferred, dead-lettered, in transfer."""

    async def set_sending(self, path: str, *, enabled: bool) -> None:
        """Set the queue's status to Active or to SendDisabled."""

    async def delete_queue(self, path: str) -> None:
        """Delete one queue with all its messages. :raises EntityNotFoundError: it does not exist."""

    async def entity_exists(self, path: str) -> bool:
        """Return whether ``path`` is a queue, a topic, or a subscription as ``topic/Subscriptions/name``."""


class SdkAdministration:
    """What the administration clients of a namespace share: closing, and calls that end within 30 s.

    :param meter: counts the calls; a listing of several pages counts as one.
    :param where: the namespace, in errors.
    """

    _client: Any

    def __init__(self, *, meter: Meter | None, where: str) -> None:
        guard_library_logs("azure")
        self._meter = Meter() if meter is None else meter
        self._where = where

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _exists(self, kind: str, path: str, read: Awaitable[Any]) -> bool:
        try:
            await self._call(f"read {kind} {path}", read)
        except EntityNotFoundError:
            return False
        return True

    async def _call(self, action: str, call: Awaitable[ResultT]) -> ResultT:
        """Count a call and bound it. :raises ServiceError: classified."""
        self._meter.count(Operation.MANAGE)
        with bounded_call() as answered:
            try:
                return await asyncio.wait_for(call, _CALL_TIMEOUT)
            except Exception as failure:
                error = classify_http(failure, where := f"{action} on {self._where}")
                if isinstance(error, InvalidMessageError) and answered():
                    error = ServiceFaultError(f"{where}: the answer cannot be read: {error_text(failure)}")
                raise error from failure


class ServiceBusAdministration(SdkAdministration):
    """An :class:`Administration` over ``ServiceBusAdministrationClient``; an async context manager.

    Needs the Manage right.

    :param meter: counts the calls.
    """

    def __init__(self, endpoint: Endpoint, *, meter: Meter | None = None) -> None:
        super().__init__(meter=meter, where=endpoint.namespace)
        self._client: ServiceBusAdministrationClient = sdk_client(endpoint)

    async def list_queues(self) -> dict[str, QueueSettings]:
        """Return the settings of every queue, by path. :raises ServiceError: classified."""

        async def read() -> dict[str, QueueSettings]:
            return {queue.name: _settings(queue) async for queue in self._client.list_queues()}

        return await self._call("list queues", read())

    async def create_queue(self, path: str, settings: QueueSettings) -> None:
        """Create one queue. :raises EntityExistsError: it exists."""
        creation = self._client.create_queue(
            path,
            max_size_in_megabytes=settings.max_size_in_megabytes,
            max_delivery_count=settings.max_delivery_count,
            lock_duration=settings.lock_duration,
            dead_lettering_on_message_expiration=settings.dead_lettering_on_message_expiration,
            enable_batched_operations=settings.enable_batched_operations,
            requires_session=settings.requires_session,
            **_finite_durations(settings),
        )
        await self._call(f"create queue {path}", creation)

    async def queue_depths(self, *prefixes: str) -> list[QueueDepth]:
        """Return the depth of every queue whose path begins with one of ``prefixes``, from one listing."""

        async def read() -> list[QueueDepth]:
            folded = tuple(prefix.casefold() for prefix in prefixes)
            return [
                QueueDepth(
                    path=queue.name,
                    active=count_of(queue.active_message_count),
                    scheduled=count_of(queue.scheduled_message_count),
                    dead_lettered=count_of(queue.dead_letter_message_count),
                    size_bytes=count_of(queue.size_in_bytes),
                )
                async for queue in self._client.list_queues_runtime_properties()
                if queue.name.casefold().startswith(folded)
            ]

        return await self._call("read the depth of queues", read())

    async def message_count(self, path: str) -> int:
        """Return the number of all messages of a queue: active, scheduled, deferred, dead-lettered, in transfer."""

        async def read() -> int:
            properties = await self._client.get_queue_runtime_properties(path)
            counts = (
                properties.active_message_count,
                properties.scheduled_message_count,
                properties.dead_letter_message_count,
                properties.transfer_message_count,
                properties.transfer_dead_letter_message_count,
            )
            return held_messages(properties.total_message_count, counts)

        return await self._call(f"count {path}", read())

    async def set_sending(self, path: str, *, enabled: bool) -> None:
        """Set the queue's status to Active or to SendDisabled."""
        queue = await self._call(f"read {path}", self._client.get_queue(path))
        queue.status = EntityStatus.ACTIVE if enabled else EntityStatus.SEND_DISABLED
        for name in ("default_message_time_to_live", "auto_delete_on_idle"):
            # See _finite_durations.
            if duration_text(getattr(queue, name)) == MAX_TIME_SPAN:
                setattr(queue, name, None)
        await self._call(f"update {path}", self._client.update_queue(queue))

    async def delete_queue(self, path: str) -> None:
        """Delete one queue with all its messages. :raises EntityNotFoundError: it does not exist."""
        await self._call(f"delete {path}", self._client.delete_queue(path))

    async def entity_exists(self, path: str) -> bool:
        """As in :class:`Administration`. :raises ServiceError: classified."""
        subscription = split_subscription(path)
        if subscription is not None:
            return await self._exists("subscription", path, self._client.get_subscription(*subscription))
        return await self._exists("queue", path, self._client.get_queue(path)) or await self._exists(
            "topic", path, self._client.get_topic(path)
        )


def count_of(value: Any) -> int:
    """Return what an answer counts, 0 where it says nothing. :raises ServiceFaultError: that is impossible."""
    count = int(value or 0)
    if not 0 <= count <= _MAX_COUNT:
        raise ServiceFaultError("the answer has a count below 0 or above 2^53")
    return count


def held_messages(total: Any, counts: Iterable[Any]) -> int:
    """Return how many messages a queue holds, which may be deleted if it is empty.

    :param total: of all messages; deferred ones are in no other count.
    :param counts: of each kind.
    :raises ServiceFaultError: the answer does not say, or a count is impossible.
    """
    counts = tuple(counts)
    if {total, *counts} == {None}:
        raise ServiceFaultError("the answer does not say how many messages the queue holds")
    return max(count_of(total), sum(map(count_of, counts)))


def split_subscription(path: str) -> tuple[str, str] | None:
    """Return topic and name of ``topic/Subscriptions/name``; ``None`` for any other path."""
    found = _SUBSCRIPTION.fullmatch(path)
    return None if found is None else (found["topic"], found["name"])


def classify_http(failure: Exception, where: str) -> ServiceError:
    """Return the error that stands for a failed management call, by its HTTP status."""
    hide_secrets(failure)
    if isinstance(failure, ResourceExistsError):
        return EntityExistsError(f"{where}: it exists")
    if isinstance(failure, HttpResponseError) and failure.status_code in _BY_STATUS:
        right = " (the Manage right is needed)" if failure.status_code in _MANAGE_REQUIRED else ""
        return _BY_STATUS[failure.status_code](f"{where}: HTTP {failure.status_code}{right}: {error_text(failure)}")
    return classify(failure, where=where, authenticated=False)


def sdk_client(endpoint: Endpoint) -> ServiceBusAdministrationClient:
    """Return the SDK's client of a namespace's administration."""
    ca_file = None if endpoint.emulator else endpoint.ca_file
    # The SDK's retries would turn one slow response into four.
    settings: dict[str, Any] = {
        "retry_total": 0,
        "transport": GuardedTransport(plain=endpoint.emulator, ca_file=ca_file),
    }
    if endpoint.connection_string is None:
        return ServiceBusAdministrationClient(endpoint.administration, endpoint.credential, **settings)
    text = endpoint.connection_string.reveal().replace(endpoint.host, endpoint.administration, 1)
    return ServiceBusAdministrationClient.from_connection_string(text, **settings)


def _finite_durations(settings: QueueSettings) -> dict[str, Any]:
    """Omit unlimited durations: they are the default, and the SDK (7.15) rounds TimeSpan.MaxValue up beyond it."""
    durations = {
        "default_message_time_to_live": settings.default_message_time_to_live,
        "auto_delete_on_idle": settings.auto_delete_on_idle,
    }
    return {name: value for name, value in durations.items() if value != MAX_TIME_SPAN}


def _settings(queue: QueueProperties) -> QueueSettings:
    return QueueSettings(
        max_size_in_megabytes=queue.max_size_in_megabytes or 0,
        max_delivery_count=queue.max_delivery_count or 0,
        default_message_time_to_live=duration_text(queue.default_message_time_to_live),
        auto_delete_on_idle=duration_text(queue.auto_delete_on_idle),
        lock_duration=duration_text(queue.lock_duration),
        dead_lettering_on_message_expiration=bool(queue.dead_lettering_on_message_expiration),
        enable_batched_operations=bool(queue.enable_batched_operations),
        requires_session=bool(queue.requires_session),
        status=str(getattr(queue.status, "value", queue.status)),
    )


def duration_text(value: Any) -> str:
    """Format as ISO 8601; the SDK returns TimeSpan.MaxValue as a timedelta that is rounded to a microsecond."""
    if isinstance(value, str):
        return value
    return MAX_TIME_SPAN if value.days >= _MAX_TIME_SPAN_DAYS else format_duration(value)
