"""What a URL of Azure Resource Manager points at.

Behind the provider's name a path is pairs of a type and a name; a list ends in a type, and what is done by
POST ends in a verb. Hence a name cannot hold ``/``: the service writes ``~`` for it here and nowhere else
(Service Bus team, "Azure Service Bus, Azure Resource Manager, and this character /"). ``%2F`` is read as
``/``, so it ends a segment and leads to 404, as the service does with names in other providers
(hashicorp/terraform-provider-azurerm issue 6053); for Service Bus itself nobody has published an answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from servicebus_emulator.arm.errors import ArmError

__all__ = ["PROVIDER", "Address", "Scope", "address_of", "entity_of", "segment_of"]

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
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The subscription and the resource group in which namespaces are found; compared without case.

    :raises ValueError: naming the one that cannot be, and what is allowed.
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
    """A place below the provider.

    :ivar subscription: the id of the subscription; None = the provider itself.
    :ivar resource_group: None = all of the subscription.
    :ivar types: the types on the way, in the service's spelling; one that is unknown as it came.
    :ivar names: a name for each type, or, for a list, for all but the last.
    :ivar verb: what a POST asks for, in lower case.
    """

    subscription: str | None
    resource_group: str | None
    types: tuple[str, ...]
    names: tuple[str, ...]
    verb: str | None = None

    @property
    def is_list(self) -> bool:
        """Whether all resources of a type are meant."""
        return len(self.names) < len(self.types)

    @property
    def entity(self) -> str:
        """The path of what is meant, as the other interfaces write it: ``topic/subscriptions/name``; "" = no entity."""
        if len(self.names) == 1 or self.types[1:2] not in _ENTITIES:
            return ""
        below = (f"/{kind}/{name}" for kind, name in zip(self.types[2:], self.names[2:], strict=False))
        return entity_of(self.names[1]) + "".join(below)


def entity_of(segment: str) -> str:
    """Return the path of a queue or topic, which is written as one segment."""
    return segment.replace(_SLASH, "/")


def segment_of(path: str) -> str:
    """Return how the path of a queue or topic is written as a segment, and as a name."""
    return path.replace("/", _SLASH)


def address_of(raw_path: str, *, method: str) -> Address:
    """Read the path of a URL.

    :param raw_path: the path as it came, percent-encoded once.
    :param method: a POST ends in a verb.
    :raises ArmError: when it leads nowhere near the provider.
    """
    segments = unquote(raw_path).strip("/").split("/")
    subscription, segments = _after("subscriptions", segments)
    group, segments = _after("resourcegroups", segments)
    if [segment.casefold() for segment in segments[:2]] != ["providers", PROVIDER.casefold()]:
        raise ArmError(
            404,
            code="InvalidResourceType",
            message=f"nothing is at {quote(unquote(raw_path))!r}; allowed: paths of the provider {PROVIDER}",
        )
    rest = segments[2:]
    verb = None
    if method == "POST" and len(rest) % 2 == 1:
        verb = rest.pop().casefold()
    return Address(
        subscription=subscription,
        resource_group=group,
        types=tuple(_SPELLINGS.get(word.casefold(), word) for word in rest[::2]),
        names=tuple(rest[1::2]),
        verb=verb,
    )


def _after(word: str, segments: list[str]) -> tuple[str | None, list[str]]:
    if len(segments) > 1 and segments[0].casefold() == word:
        return segments[1], segments[2:]
    return None, segments
