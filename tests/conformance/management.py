# ruff: noqa: ARG002 - the signatures of azure-mgmt-servicebus
"""Stands in for the client of the resource manager, by the administration API of the same namespace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

if TYPE_CHECKING:
    from tests.conformance.lane import Lane

__all__ = ["ResourceManager"]

_ENTITY_FIELDS = (
    "lock_duration",
    "requires_session",
    "requires_duplicate_detection",
    "dead_lettering_on_message_expiration",
    "enable_partitioning",
)


class ResourceManager:
    """Makes and removes what tests ask for.

    :param lane: whose namespace it is.
    :param namespace: the name of the one namespace.
    """

    def __init__(self, lane: Lane, *, namespace: str) -> None:
        self._client = ServiceBusAdministrationClient.from_connection_string(lane.connection_string())
        self.namespaces = _Namespaces(lane, namespace=namespace)
        self.queues = _Queues(self._client, lane=lane)
        self.topics = _Topics(self._client)
        self.subscriptions = _Subscriptions(self._client)


class _Namespaces:
    def __init__(self, lane: Lane, *, namespace: str) -> None:
        self._lane = lane
        self._namespace = namespace

    def begin_create_or_update(self, *_: Any) -> Any:
        found = SimpleNamespace(name=self._namespace)
        return SimpleNamespace(result=lambda: found)

    def delete(self, *_: Any) -> None:
        """Keep the namespace: it is the only one."""

    def create_or_update_authorization_rule(self, group: str, namespace: str, name: str, rule: Any) -> Any:
        return SimpleNamespace(name=name, rights=rule.rights)

    def delete_authorization_rule(self, *_: Any) -> None:
        """Forget the rule."""

    def list_keys(self, group: str, namespace: str, name: str) -> Any:
        return _keys(self._lane, policy=name)


class _Queues:
    def __init__(self, client: ServiceBusAdministrationClient, *, lane: Lane) -> None:
        self._client = client
        self._lane = lane

    def create_or_update(self, group: str, namespace: str, name: str, queue: Any) -> Any:
        return self._client.create_queue(name, **_fields(queue))

    def delete(self, group: str, namespace: str, name: str) -> None:
        _delete(self._client.delete_queue, name)

    def create_or_update_authorization_rule(self, group: str, namespace: str, queue: str, name: str, rule: Any) -> Any:
        return SimpleNamespace(name=name, rights=rule.rights)

    def delete_authorization_rule(self, *_: Any) -> None:
        """Forget the rule."""

    def list_keys(self, group: str, namespace: str, queue: str, name: str) -> Any:
        return _keys(self._lane, policy=name, entity=queue)


class _Topics:
    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client

    def create_or_update(self, group: str, namespace: str, name: str, topic: Any) -> Any:
        return self._client.create_topic(name)

    def delete(self, group: str, namespace: str, name: str) -> None:
        _delete(self._client.delete_topic, name)


class _Subscriptions:
    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client

    def create_or_update(self, group: str, namespace: str, topic: str, name: str, subscription: Any) -> Any:
        return self._client.create_subscription(topic, name, **_fields(subscription))

    def delete(self, group: str, namespace: str, topic: str, name: str) -> None:
        _delete(self._client.delete_subscription, topic, name)


def _fields(model: Any) -> dict[str, Any]:
    values = {name: getattr(model, name, None) for name in _ENTITY_FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def _delete(delete: Any, *names: str) -> None:
    try:
        delete(*names)
    except ResourceNotFoundError:
        return


def _keys(lane: Lane, *, policy: str, entity: str | None = None) -> Any:
    return SimpleNamespace(
        key_name=policy,
        primary_key=lane.key,
        primary_connection_string=lane.connection_string(policy, entity=entity),
    )
