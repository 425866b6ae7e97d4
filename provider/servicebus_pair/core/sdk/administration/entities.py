"""Creating, changing and deleting queues, topics, subscriptions and rules of a namespace."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

from servicebus_pair.core.model.errors import ConfigurationError, EntityExistsError, EntityNotFoundError
from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.protocol.backlog_queues import MAX_TIME_SPAN
from servicebus_pair.core.sdk.administration.data_plane import SdkAdministration, duration_text, sdk_client

_RULE_SETTINGS: Final = ("sql", "correlation", "action")
_SUBSCRIPTION: Final = re.compile(
    r"(?P<topic>.+)/Subscriptions/(?P<subscription>[^/]+)(?:/Rules/(?P<rule>[^/]+))?", re.IGNORECASE
)
_UNLIMITED: Final = ("default_message_time_to_live", "auto_delete_on_idle")


@dataclass(frozen=True, slots=True)
class EntityName:
    """Names an entity of a namespace.

    :param kind: queue, topic, subscription or rule.
    :param parts: its name after the names of the entities that it belongs to.
    """

    kind: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, path: str, *, kind: str) -> EntityName:
        """Return what a path names.

        :param path: the path of a queue or topic, ``topic/Subscriptions/name`` or
            ``topic/Subscriptions/name/Rules/name``.
        :param kind: ``queue`` or ``topic``, where the path is that of one of them.
        """
        found = _SUBSCRIPTION.fullmatch(path)
        if found is None:
            return cls(kind, (path,))
        parts = tuple(filter(None, found.groups()))
        return cls("rule" if found["rule"] else "subscription", parts)

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(self.parts)}"


class EntityAdministration(SdkAdministration):
    """Manages the entities of a namespace through its own administration, which needs the Manage right.

    An asynchronous context manager.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(meter=None, where=endpoint.namespace)
        self._client: Any = sdk_client(endpoint)

    async def create(self, name: EntityName, settings: Mapping[str, Any]) -> bool:
        """Create an entity; return whether it did not exist.

        :param settings: by the SDK's names; of a rule ``sql``, ``correlation`` and ``action``.
        :raises ConfigurationError: a setting is unknown.
        :raises ServiceError: classified.
        """
        create = getattr(self._client, f"create_{name.kind}")
        values = _rule(settings) if name.kind == "rule" else _known(settings, create, name)
        try:
            await self._call(f"create {name}", create(*name.parts, **values))
        except EntityExistsError:
            return False
        return True

    async def update(self, name: EntityName, settings: Mapping[str, Any]) -> None:
        """Change settings of an entity; errors as in :meth:`create`, and ``EntityNotFoundError``."""
        kind, parents = name.kind, name.parts[:-1]
        known = _rule(settings) if kind == "rule" else _known(settings, getattr(self._client, f"create_{kind}"), name)
        read: Callable[..., Awaitable[Any]] = getattr(self._client, f"get_{kind}")
        described = await self._call(f"read {name}", read(*name.parts))
        for setting in _UNLIMITED:
            if hasattr(described, setting) and duration_text(getattr(described, setting)) == MAX_TIME_SPAN:
                setattr(described, setting, None)  # the SDK (7.15) rounds it up beyond what the service allows
        for setting, value in known.items():
            setattr(described, setting, value)
        await self._call(f"update {name}", partial(getattr(self._client, f"update_{kind}"), *parents)(described))

    async def delete(self, name: EntityName) -> bool:
        """Delete an entity with all that it holds; return whether it existed. :raises ServiceError: classified."""
        try:
            await self._call(f"delete {name}", getattr(self._client, f"delete_{name.kind}")(*name.parts))
        except EntityNotFoundError:
            return False
        return True


def _known(settings: Mapping[str, Any], create: Callable[..., Any], name: EntityName) -> dict[str, Any]:
    """Check the names: the SDK ignores unknown ones."""
    parameters = inspect.signature(create).parameters.values()
    allowed = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    _refuse_unknown(settings, allowed, f"a {name.kind}")
    return dict(settings)


def _rule(settings: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_unknown(settings, _RULE_SETTINGS, "a rule")
    if "sql" in settings and "correlation" in settings:
        raise ConfigurationError("settings have sql and correlation: a rule has one filter")
    values: dict[str, Any] = {}
    if "sql" in settings:
        values["filter"] = SqlRuleFilter(settings["sql"])
    if "correlation" in settings:
        values["filter"] = CorrelationRuleFilter(**settings["correlation"])
    if "action" in settings:
        values["action"] = SqlRuleAction(settings["action"])
    return values


def _refuse_unknown(settings: Mapping[str, Any], allowed: object, what: str) -> None:
    names = sorted(map(str, allowed))  # type: ignore[call-overload]
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise ConfigurationError(f"settings has {', '.join(unknown)}: {what} has {', '.join(names)}")
