"""The URLs of Azure Resource Manager.

After the provider's name a path consists of pairs of a type and a name; a list ends in a type, and an action by
POST ends in a verb. Hence a name cannot contain ``/``: the service writes ``~`` for it, here only
(Service Bus team, "Azure Service Bus, Azure Resource Manager, and this character /"). ``%2F`` is decoded to
``/``, so it ends a segment and leads to 404, as with names in other providers
(hashicorp/terraform-provider-azurerm issue 6053); the behavior of Service Bus itself is undocumented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from servicebus_emulator.arm.errors import ArmError

PROVIDER: Final = "Microsoft.ServiceBus"

_SCOPE: Final = re.compile(r"[\w().-]{1,90}")
_SLASH: Final = "~"
_ENTITIES: Final = (("queues",), ("topics",))
_SPELLINGS: Final = {
    word.casefold(): word
    for word in (
        "namespaces",
        "queues",
        "topics",
        "subscriptions",
        "rules",
        "authorizationRules",
        "networkRuleSets",
        "disasterRecoveryConfigs",
        "migrationConfigurations",
        "networkSecurityPerimeterConfigurations",
        "privateEndpointConnections",
        "privateLinkResources",
        "operations",
        "operationresults",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The subscription and the resource group of all namespaces; case-insensitive.

    :raises ValueError: one of them has characters that are not allowed.
    """

    subscription: str = "00000000-0000-0000-0000-000000000000"
    resource_group: str = "servicebus-emulator"

    def __post_init__(self) -> None:
        for name in ("subscription", "resource_group"):
            value = getattr(self, name)
            if _SCOPE.fullmatch(value) is None:
                raise ValueError(f"{name} is {value!r}; allowed: 1 to 90 letters, digits, '-', '_', '.', '(' and ')'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A resource or a list of resources of the provider.

    :ivar subscription: the id of the subscription; None = the provider itself.
    :ivar resource_group: None = the whole subscription.
    :ivar types: the types on the path, in the service's spelling; an unknown one as received.
    :ivar names: a name for each type; in a list, for all but the last.
    :ivar verb: the action of a POST, in lower case.
    """

    subscription: str | None
    resource_group: str | None
    types: tuple[str, ...]
    names: tuple[str, ...]
    verb: str | None = None

    @property
    def is_list(self) -> bool:
        """Whether it addresses all resources of a type."""
        return len(self.names) < len(self.types)

    @property
    def entity(self) -> str:
        """The path of the entity in AMQP notation: ``topic/subscriptions/name``; "" = no entity."""
        if len(self.names) == 1 or self.types[1:2] not in _ENTITIES:
            return ""
        suffixes = (f"/{kind}/{name}" for kind, name in zip(self.types[2:], self.names[2:], strict=False))
        return entity_path(self.names[1]) + "".join(suffixes)


def entity_path(segment: str) -> str:
    """Return the path of the queue or topic in a URL segment."""
    return segment.replace(_SLASH, "/")


def path_segment(path: str) -> str:
    """Return the path of a queue or topic as a URL segment and resource name."""
    return path.replace("/", _SLASH)


def parse_address(raw_path: str, *, method: str) -> Address:
    """Parse the path of a URL.

    :param raw_path: the path as received, percent-encoded once.
    :param method: the HTTP method; the path of a POST ends in a verb.
    :raises ArmError: it is not a path of the provider.
    """
    segments = unquote(raw_path).strip("/").split("/")
    subscription, segments = _pop_pair("subscriptions", segments)
    group, segments = _pop_pair("resourcegroups", segments)
    if [segment.casefold() for segment in segments[:2]] != ["providers", PROVIDER.casefold()]:
        raise ArmError(
            404,
            f"nothing is at {quote(unquote(raw_path))!r}; allowed: paths of the provider {PROVIDER}",
            code="InvalidResourceType",
        )
    pairs = segments[2:]
    verb = None
    if method == "POST" and len(pairs) % 2 == 1:
        verb = pairs.pop().casefold()
    return Address(
        subscription=subscription,
        resource_group=group,
        types=tuple(_SPELLINGS.get(word.casefold(), word) for word in pairs[::2]),
        names=tuple(pairs[1::2]),
        verb=verb,
    )


def _pop_pair(word: str, segments: list[str]) -> tuple[str | None, list[str]]:
    if len(segments) > 1 and segments[0].casefold() == word:
        return segments[1], segments[2:]
    return None, segments
