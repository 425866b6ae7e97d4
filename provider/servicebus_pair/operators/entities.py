"""Operators that create, change and delete queues, topics, subscriptions and rules of either namespace."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Context, XComArg

from servicebus_pair.airflow_runtime.validators import choice, entity_path, mapping
from servicebus_pair.core.errors import EntityExistsError, EntityNotFoundError
from servicebus_pair.operators._support.base import AsyncPairOperator

if TYPE_CHECKING:
    from servicebus_pair.core.sdk import EntityAdministration, EntityName

__all__ = ["ServiceBusEntityCreateOperator", "ServiceBusEntityDeleteOperator", "ServiceBusEntityUpdateOperator"]

_kind = choice("queue", "topic")
_namespace = choice("primary", "secondary")
_if_exists = choice("skip", "update", "fail")
_if_missing = choice("skip", "fail")


class BaseEntityOperator(AsyncPairOperator):
    """Manages one entity of one namespace of the pair, through its own administration; needs the Manage right there."""

    template_fields: Sequence[str] = ("entity", "kind", "namespace")
    parameter_checks: ClassVar = {"entity": entity_path, "kind": _kind, "namespace": _namespace}
    detects_health: ClassVar = False

    def __init__(self, *, entity: str, kind: str = "queue", namespace: str = "primary", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.kind = kind
        self.namespace = namespace

    async def aexecute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  the base class passes it
        """Manage the entity."""
        from servicebus_pair.core.sdk import EntityAdministration, EntityName

        settings = await self.hook.aget_settings()
        endpoint = getattr(settings, _namespace("namespace", self.namespace))
        name = EntityName.parse(entity_path("entity", self.entity), kind=_kind("kind", self.kind))
        async with EntityAdministration(endpoint) as administration:
            done = await self.manage(administration, name)
        self.log.info("namespace=%s %s: %s", endpoint.namespace, name, done)
        return {"entity": self.entity, "kind": name.kind, "namespace": endpoint.namespace, "done": done}

    @abstractmethod
    async def manage(self, administration: EntityAdministration, name: EntityName) -> str:
        """Manage the entity and return what was done."""


class ServiceBusEntityCreateOperator(BaseEntityOperator):
    """Creates a queue, topic, subscription or rule.

    The result is ``{"entity", "kind", "namespace", "done"}``; ``done`` is ``created``, ``updated`` or ``existed``.

    :param entity: path of a queue or topic, ``topic/Subscriptions/name`` or ``topic/Subscriptions/name/Rules/name``
        (templated).
    :param kind: ``queue`` or ``topic``, where ``entity`` is the path of one of them (templated).
    :param namespace: ``primary`` or ``secondary`` (templated).
    :param settings: by the names of the SDK's ``create_queue``, ``create_topic`` and ``create_subscription``, durations
        in ISO 8601; of a rule ``sql`` or ``correlation``, and ``action`` (templated).
    :param if_exists: ``skip`` it, ``update`` its settings, or ``fail`` (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or setting is invalid; nothing was done.
    :raises ServiceError: the namespace refuses, or cannot be reached.
    """

    template_fields = (*BaseEntityOperator.template_fields, "settings", "if_exists")
    parameter_checks: ClassVar = {"settings": mapping, "if_exists": _if_exists}

    def __init__(
        self, *, settings: Mapping[str, Any] | XComArg | None = None, if_exists: str = "skip", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings: Any = {} if settings is None else settings
        self.if_exists = if_exists
        self.check_parameters()

    async def manage(self, administration: EntityAdministration, name: EntityName) -> str:
        """Create the entity."""
        settings, if_exists = mapping("settings", self.settings), _if_exists("if_exists", self.if_exists)
        if await administration.create(name, settings):
            return "created"
        if if_exists == "fail":
            raise EntityExistsError(f"create {name}: it exists")
        if if_exists == "update" and settings:
            await administration.update(name, settings)
            return "updated"
        return "existed"


class ServiceBusEntityUpdateOperator(BaseEntityOperator):
    """Changes settings of a queue, topic, subscription or rule; the others stay.

    The parameters and the result are those of ``ServiceBusEntityCreateOperator``, without ``if_exists``.

    :raises EntityNotFoundError: it does not exist.
    """

    template_fields = (*BaseEntityOperator.template_fields, "settings")
    parameter_checks: ClassVar = {"settings": mapping}

    def __init__(self, *, settings: Mapping[str, Any] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings: Any = settings
        self.check_parameters()

    async def manage(self, administration: EntityAdministration, name: EntityName) -> str:
        """Change the entity."""
        await administration.update(name, mapping("settings", self.settings))
        return "updated"


class ServiceBusEntityDeleteOperator(BaseEntityOperator):
    """Deletes a queue, topic, subscription or rule, **with the messages in it**.

    The result is that of ``ServiceBusEntityCreateOperator``; ``done`` is ``deleted`` or ``missing``. To delete backlog
    queues, use ``ServiceBusPairCleanupOperator``, which keeps those that hold messages.

    :param if_missing: ``skip`` or ``fail`` (templated).
    """

    template_fields = (*BaseEntityOperator.template_fields, "if_missing")
    parameter_checks: ClassVar = {"if_missing": _if_missing}

    def __init__(self, *, if_missing: str = "skip", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.if_missing = if_missing
        self.check_parameters()

    async def manage(self, administration: EntityAdministration, name: EntityName) -> str:
        """Delete the entity."""
        if await administration.delete(name):
            return "deleted"
        if _if_missing("if_missing", self.if_missing) == "fail":
            raise EntityNotFoundError(f"delete {name}: it does not exist")
        return "missing"
