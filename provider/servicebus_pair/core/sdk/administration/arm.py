"""Managing queues through Azure Resource Manager (SPEC section 3), for credentials without data-plane rights.

A ``/`` in a queue's name is written ``~`` here (Microsoft's REST reference of Microsoft.ServiceBus; the SDK does not
convert it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from azure.core import AzureClouds
from azure.mgmt.core.tools import get_arm_endpoints
from azure.mgmt.servicebus.aio import ServiceBusManagementClient

from servicebus_pair.core.model.errors import (
    EntityExistsError,
    EntityNotFoundError,
    RefusedError,
    ServiceFaultError,
)
from servicebus_pair.core.model.options import ArmCoordinates, Endpoint
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.protocol.backlog_queues import QueueSettings
from servicebus_pair.core.sdk.administration.data_plane import (
    QueueDepth,
    SdkAdministration,
    count_of,
    held_messages,
    split_subscription,
)
from servicebus_pair.core.sdk.http.guarded_transport import GuardedTransport

_PROPERTY_NAMES: Final = {
    "max_size_in_megabytes": "maxSizeInMegabytes",
    "max_delivery_count": "maxDeliveryCount",
    "default_message_time_to_live": "defaultMessageTimeToLive",
    "auto_delete_on_idle": "autoDeleteOnIdle",
    "lock_duration": "lockDuration",
    "dead_lettering_on_message_expiration": "deadLetteringOnMessageExpiration",
    "enable_batched_operations": "enableBatchedOperations",
    "requires_session": "requiresSession",
    "status": "status",
}
_READ_ONLY: Final = frozenset({"createdAt", "updatedAt", "accessedAt", "sizeInBytes", "messageCount", "countDetails"})


class ArmAdministration(SdkAdministration):
    """An ``Administration`` over ``azure-mgmt-servicebus``; an async context manager.

    Needs the right to write the namespace's queues, such as the role Contributor.

    :param endpoint: the namespace.
    :param arm: subscription, resource group and credential.
    :param meter: counts the calls.
    """

    def __init__(self, endpoint: Endpoint, arm: ArmCoordinates, *, meter: Meter | None = None) -> None:
        super().__init__(meter=meter, where=f"{endpoint.namespace} through ARM")
        self._scope = (arm.resource_group, endpoint.namespace)
        self._client: ServiceBusManagementClient = _sdk_client(endpoint, arm)

    async def list_queues(self) -> dict[str, QueueSettings]:
        """Return the settings of every queue, by path. :raises ServiceError: classified."""
        listed = await self._list()
        with _reading("list queues"):
            return {path: _settings(properties) for path, properties in listed}

    async def create_queue(self, path: str, settings: QueueSettings) -> None:
        """Create one queue. :raises EntityExistsError: it exists."""
        # ARM's PUT would silently update an existing queue.
        if await self._exists("queue", path, self._client.queues.get(*self._scope, _arm_name(path))):
            raise EntityExistsError(f"create queue {path} on {self._where}: it exists")
        properties = {theirs: getattr(settings, ours) for ours, theirs in _PROPERTY_NAMES.items()}
        await self._put(f"create queue {path}", path, properties)

    async def queue_depths(self, *prefixes: str) -> list[QueueDepth]:
        """Return the depth of every queue whose path begins with one of ``prefixes``, from one listing."""
        folded = tuple(prefix.casefold() for prefix in prefixes)
        listed = await self._list()
        with _reading("list queues"):
            return [
                QueueDepth(
                    path=path,
                    active=_count(properties, "activeMessageCount"),
                    scheduled=_count(properties, "scheduledMessageCount"),
                    dead_lettered=_count(properties, "deadLetterMessageCount"),
                    size_bytes=count_of(properties.get("sizeInBytes")),
                )
                for path, properties in listed
                if path.casefold().startswith(folded)
            ]

    async def message_count(self, path: str) -> int:
        """Return the number of all messages of a queue: active, scheduled, deferred, dead-lettered, in transfer."""
        properties = await self._get(path)
        with _reading(f"read {path}"):
            return held_messages(properties.get("messageCount"), (properties.get("countDetails") or {}).values())

    async def set_sending(self, path: str, *, enabled: bool) -> None:
        """Set the queue's status to Active or to SendDisabled."""
        properties = {name: value for name, value in (await self._get(path)).items() if name not in _READ_ONLY}
        await self._put(f"update {path}", path, {**properties, "status": "Active" if enabled else "SendDisabled"})

    async def delete_queue(self, path: str) -> None:
        """Delete one queue with all its messages. :raises EntityNotFoundError: it does not exist."""
        # ARM's DELETE succeeds for a queue that does not exist.
        await self._get(path)
        await self._call(f"delete {path}", self._client.queues.delete(*self._scope, _arm_name(path)))

    async def entity_exists(self, path: str) -> bool:
        """As in ``Administration``.

        :raises RefusedError: the namespace was not found, so nothing is known about its entities.
        :raises ServiceError: classified.
        """
        if await self._found(path):
            return True
        try:
            await self._call("look for the namespace", self._client.namespaces.get(*self._scope))
        except EntityNotFoundError as error:
            raise RefusedError(
                f"namespace {self._scope[1]} is not in resource group {self._scope[0]!r} of this subscription"
            ) from error
        return False

    async def _list(self) -> list[tuple[str, Mapping[str, Any]]]:
        async def read() -> list[tuple[str, Mapping[str, Any]]]:
            queues = self._client.queues.list_by_namespace(*self._scope)
            return [(_path(str(queue.name)), _properties(queue)) async for queue in queues]

        return await self._call("list queues", read())

    async def _get(self, path: str) -> Mapping[str, Any]:
        queue = await self._call(f"read {path}", self._client.queues.get(*self._scope, _arm_name(path)))
        with _reading(f"read {path}"):
            return dict(_properties(queue))

    async def _found(self, path: str) -> bool:
        subscription = split_subscription(path)
        if subscription is not None:
            topic, name = subscription
            read = self._client.subscriptions.get(*self._scope, _arm_name(topic), name)
            return await self._exists("subscription", path, read)
        named = *self._scope, _arm_name(path)
        return await self._exists("queue", path, self._client.queues.get(*named)) or await self._exists(
            "topic", path, self._client.topics.get(*named)
        )

    async def _put(self, action: str, path: str, properties: Mapping[str, Any]) -> None:
        body: Any = {"properties": dict(properties)}
        await self._call(action, self._client.queues.create_or_update(*self._scope, _arm_name(path), body))


def _sdk_client(endpoint: Endpoint, arm: ArmCoordinates) -> ServiceBusManagementClient:
    # The SDK's retries would turn one slow response into four.
    settings: dict[str, Any] = {"retry_total": 0, "transport": GuardedTransport(ca_file=endpoint.ca_file)}
    if arm.management_endpoint is not None:
        settings["base_url"] = arm.management_endpoint
        settings["credential_scopes"] = _scopes(arm.management_endpoint)
    return ServiceBusManagementClient(arm.credential, arm.subscription_id, **settings)


def _scopes(management_endpoint: str) -> list[str]:
    """Return the token audience, which differs in each sovereign cloud."""
    clouds = [get_arm_endpoints(cloud) for cloud in (AzureClouds.AZURE_CHINA_CLOUD, AzureClouds.AZURE_US_GOVERNMENT)]
    sovereign: dict[str, list[str]] = {
        cloud["resource_manager"].rstrip("/"): cloud["credential_scopes"] for cloud in clouds
    }
    public: list[str] = get_arm_endpoints(AzureClouds.AZURE_PUBLIC_CLOUD)["credential_scopes"]
    return sovereign.get(management_endpoint.rstrip("/"), public)


@contextmanager
def _reading(action: str) -> Iterator[None]:
    """:raises ServiceFaultError: the answer lacks a member, or has one of another type."""
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ServiceFaultError(
            f"{action} through ARM: the answer is not one of its: {type(error).__name__}"
        ) from error


def _arm_name(path: str) -> str:
    return path.replace("/", "~")


def _path(arm_name: str) -> str:
    return arm_name.replace("~", "/")


def _properties(queue: Any) -> Mapping[str, Any]:
    """Return the raw properties: the SDK's model parses durations into timedelta, which cannot hold the maximum."""
    properties: Mapping[str, Any] = queue["properties"]
    return properties


def _count(properties: Mapping[str, Any], name: str) -> int:
    return count_of((properties.get("countDetails") or {}).get(name))


def _settings(properties: Mapping[str, Any]) -> QueueSettings:
    values: dict[str, Any] = {ours: properties.get(theirs) for ours, theirs in _PROPERTY_NAMES.items()}
    return QueueSettings(**values)
