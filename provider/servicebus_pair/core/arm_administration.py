"""Managing a namespace's queues through Azure Resource Manager (SPEC section 3).

For those who may manage resources but not the data plane. A ``/`` in a queue's name is written
``~`` there (Microsoft's REST reference of Microsoft.ServiceBus; the SDK does not convert it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from azure.core import AzureClouds
from azure.mgmt.core.tools import get_arm_endpoints
from azure.mgmt.servicebus.aio import ServiceBusManagementClient

from servicebus_pair.core.administration import QueueDepth, classify_http
from servicebus_pair.core.backlog import QueueShape
from servicebus_pair.core.errors import EntityExistsError, EntityNotFoundError, RefusedError
from servicebus_pair.core.meter import Meter, Operation
from servicebus_pair.core.options import ArmCoordinates, Endpoint

__all__ = ["ArmAdministration"]

_CALL_SECONDS: Final = 30.0
_FIELDS: Final = {
    "max_size_in_megabytes": "maxSizeInMegabytes",
    "max_delivery_count": "maxDeliveryCount",
    "default_message_time_to_live": "defaultMessageTimeToLive",
    "auto_delete_on_idle": "autoDeleteOnIdle",
    "lock_duration": "lockDuration",
    "dead_lettering_on_message_expiration": "deadLetteringOnMessageExpiration",
    "enable_batched_operations": "enableBatchedOperations",
    "status": "status",
}
_READ_ONLY: Final = frozenset({"createdAt", "updatedAt", "accessedAt", "sizeInBytes", "messageCount", "countDetails"})

ResultT = TypeVar("ResultT")


class ArmAdministration:
    """An ``Administration`` over ``azure-mgmt-servicebus``; an async context manager.

    Needs the right to write the namespace's queues, such as the role Contributor. Every call ends
    within 30 s.

    :param endpoint: the namespace whose queues are managed: the secondary.
    :param arm: where Resource Manager has it, and as whom to manage it.
    :param meter: counts the calls; a listing of several pages counts as one.
    """

    def __init__(self, endpoint: Endpoint, arm: ArmCoordinates, *, meter: Meter | None = None) -> None:
        self._where = (arm.resource_group, endpoint.namespace)
        self._namespace = endpoint.namespace
        self._meter = Meter() if meter is None else meter
        self._client = _sdk_client(endpoint, arm)

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
        return {path: _shape(properties) for path, properties in await self._list()}

    async def create_queue(self, path: str, shape: QueueShape) -> None:
        """Create one queue. :raises EntityExistsError: it is there already."""
        if await self._is_there("queue", path):
            raise EntityExistsError(f"create queue {path} on {self._namespace}: it exists")
        properties = {theirs: getattr(shape, ours) for ours, theirs in _FIELDS.items()}
        await self._put(f"create queue {path}", path, properties)

    async def depths(self, prefix: str) -> list[QueueDepth]:
        """Answer the depth of every queue whose path begins with ``prefix``."""
        folded = prefix.casefold()
        return [
            QueueDepth(
                path=path,
                active=_count(properties, "activeMessageCount"),
                scheduled=_count(properties, "scheduledMessageCount"),
                dead_lettered=_count(properties, "deadLetterMessageCount"),
                size_bytes=int(properties.get("sizeInBytes") or 0),
            )
            for path, properties in await self._list()
            if path.casefold().startswith(folded)
        ]

    async def held(self, path: str) -> int:
        """Answer all that a queue holds: active, scheduled, deferred, dead-lettered, in transfer."""
        properties = await self._get(path)
        parts = sum(int(part or 0) for part in (properties.get("countDetails") or {}).values())
        # Deferred messages are in the total only.
        return max(int(properties.get("messageCount") or 0), parts)

    async def allow_sending(self, path: str, *, allowed: bool) -> None:
        """Set the queue's status to Active, or to SendDisabled."""
        properties = {name: value for name, value in (await self._get(path)).items() if name not in _READ_ONLY}
        await self._put(f"update {path}", path, {**properties, "status": "Active" if allowed else "SendDisabled"})

    async def delete_queue(self, path: str) -> None:
        """Delete one queue with all that it holds. :raises EntityNotFoundError: it is gone already."""
        await self._get(path)
        await self._bounded(f"delete {path}", self._client.queues.delete(*self._where, _name(path)))

    async def exists(self, path: str) -> bool:
        """Answer whether there is a queue or topic ``path``.

        :raises RefusedError: the namespace itself is not there, which says nothing of its entities.
        :raises ServiceError: classified.
        """
        if await self._is_there("queue", path) or await self._is_there("topic", path):
            return True
        try:
            await self._bounded("look for the namespace", self._client.namespaces.get(*self._where))
        except EntityNotFoundError as error:
            raise RefusedError(
                f"namespace {self._namespace} is not in resource group {self._where[0]!r} of this subscription"
            ) from error
        return False

    async def _list(self) -> list[tuple[str, Mapping[str, Any]]]:
        async def read() -> list[tuple[str, Mapping[str, Any]]]:
            found = self._client.queues.list_by_namespace(*self._where)
            return [(_path(str(queue.name)), _properties(queue)) async for queue in found]

        return await self._bounded("list queues", read())

    async def _get(self, path: str) -> Mapping[str, Any]:
        return _properties(await self._bounded(f"read {path}", self._client.queues.get(*self._where, _name(path))))

    async def _is_there(self, kind: str, path: str) -> bool:
        operations = self._client.queues if kind == "queue" else self._client.topics
        try:
            await self._bounded(f"look for {kind} {path}", operations.get(*self._where, _name(path)))
        except EntityNotFoundError:
            return False
        return True

    async def _put(self, doing: str, path: str, properties: Mapping[str, Any]) -> None:
        body: Any = {"properties": dict(properties)}
        await self._bounded(doing, self._client.queues.create_or_update(*self._where, _name(path), body))

    async def _bounded(self, doing: str, call: Awaitable[ResultT]) -> ResultT:
        self._meter.count(Operation.MANAGE)
        try:
            return await asyncio.wait_for(call, _CALL_SECONDS)
        except Exception as failure:
            raise classify_http(failure, f"{doing} on {self._namespace} through ARM") from failure


def _sdk_client(endpoint: Endpoint, arm: ArmCoordinates) -> ServiceBusManagementClient:
    # Retrying is ours: a slow answer must not become four.
    settings: dict[str, Any] = {"retry_total": 0}
    if endpoint.ca_file is not None:
        settings["connection_verify"] = endpoint.ca_file
    if arm.management_endpoint is not None:
        settings["base_url"] = arm.management_endpoint
        settings["credential_scopes"] = _scopes(arm.management_endpoint)
    return ServiceBusManagementClient(arm.credential, arm.subscription_id, **settings)


def _scopes(management_endpoint: str) -> list[str]:
    """What a token is asked for: each sovereign cloud has an audience of its own."""
    clouds = [get_arm_endpoints(cloud) for cloud in (AzureClouds.AZURE_CHINA_CLOUD, AzureClouds.AZURE_US_GOVERNMENT)]
    own: dict[str, list[str]] = {cloud["resource_manager"].rstrip("/"): cloud["credential_scopes"] for cloud in clouds}
    public: list[str] = get_arm_endpoints(AzureClouds.AZURE_PUBLIC_CLOUD)["credential_scopes"]
    return own.get(management_endpoint.rstrip("/"), public)


def _name(path: str) -> str:
    return path.replace("/", "~")


def _path(name: str) -> str:
    return name.replace("~", "/")


def _properties(queue: Any) -> Mapping[str, Any]:
    """The properties as they came: durations as text, since a timedelta cannot hold the longest one."""
    found: Mapping[str, Any] = queue["properties"]
    return found


def _count(properties: Mapping[str, Any], name: str) -> int:
    return int((properties.get("countDetails") or {}).get(name) or 0)


def _shape(properties: Mapping[str, Any]) -> QueueShape:
    return QueueShape(**{ours: properties.get(theirs) for ours, theirs in _FIELDS.items()})  # type: ignore[arg-type]
