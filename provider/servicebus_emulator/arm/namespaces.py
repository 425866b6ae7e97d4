"""Actions on namespaces, and the check of a name."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from servicebus_emulator.admin.atom.fields import format_time
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.json_values import JsonValue
from servicebus_emulator.arm.namespace_host import ManagedNamespace, NamespaceHost
from servicebus_emulator.arm.namespace_register import NamespaceRecord, NamespaceRegister
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.entity_names import NAMESPACE_NAMES, is_namespace_name
from servicebus_emulator.engine.namespace.tiers import Tier
from servicebus_emulator.engine.runtime.journal import JournalError

_SKUS: Final = tuple(str(each) for each in Tier)
_MEMBERS: Final = ("id", "name", "type", "systemData", "location", "tags", "sku", "identity", "properties")
# Azure ignores it at the top level, where the SDK's own tests put it.
_MISPLACED: Final = "disableLocalAuth"
_READ_ONLY: Final = ("provisioningState", "status", "createdAt", "updatedAt", "serviceBusEndpoint", "metricId")
_DEFAULTS: Final[Mapping[str, object]] = {
    "minimumTlsVersion": "1.2",
    "publicNetworkAccess": "Enabled",
    "disableLocalAuth": False,
    "zoneRedundant": False,
    "privateEndpointConnections": [],
}
# Stored and returned, otherwise without effect.
_STORED: Final = (
    *_DEFAULTS,
    "encryption",
    "alternateName",
    "premiumMessagingPartitions",
    "platformCapabilities",
    "geoDataReplication",
    "ipAddressType",
)
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "minimumTlsVersion": ("1.0", "1.1", "1.2", "1.3"),
    "publicNetworkAccess": ("Enabled", "Disabled", "SecuredByPerimeter"),
    "ipAddressType": ("IPv4", "DualStack"),
}
_BOOLEANS: Final = frozenset({"disableLocalAuth", "zoneRedundant"})

_PREMIUM: Final = "Premium"
# The provisioning state and the status of a namespace.
_CREATED, _COMPLETE = ("Created", "Activating"), ("Succeeded", "Active")
# The official clients wait for 30 s, or for what this says.
_POLL_SOON: Final = {"x-ms-retry-after-ms": "20"}

# The words of a region's name: "southcentralus" is shown as "South Central US".
_REGION_WORD: Final = re.compile(
    "(?:north|south)east|north|south|east|west|central|us|uk|uae|europe|asia|africa|australia|brazil|canada|china|france|"
    r"germany|india|israel|italy|japan|korea|mexico|newzealand|norway|poland|qatar|spain|sweden|switzerland|\d"
)
_REGION_NAMES: Final = {"us": "US", "uk": "UK", "uae": "UAE", "newzealand": "New Zealand"}

_log = logging.getLogger(__name__)


class Namespaces:
    """Namespaces as resources.

    As at the service, the answer to a creation says that it goes on, and a client polls the namespace; that to a
    deletion names an address to poll. Here both are complete by then, so that the next answer ends the polling.

    :param host: starts and stops the namespaces.
    :param register: the properties of the namespaces other than their entities.
    """

    def __init__(self, host: NamespaceHost, *, register: NamespaceRegister, clock: Clock) -> None:
        self._host: Final = host
        self._register: Final = register
        self._clock: Final = clock
        self._started: Final = clock.now()
        self._lock: Final = asyncio.Lock()

    async def restore(self) -> None:
        """Serve the namespaces that were created before a restart."""
        for record in self._register.records:
            if record.added and self.find(record.name) is None:
                _set_tier(await self._host.add(record.name), record=record)
        for record in self._register.records:
            served = self.find(record.name)
            if served is not None and not record.added:
                _set_tier(served, record=record)

    def find(self, name: str) -> ManagedNamespace | None:
        """Return a namespace by name; None = it does not exist."""
        return next((each for each in self._host.namespaces if each.name.casefold() == name.casefold()), None)

    def list(self, request: Request) -> Response:
        """Return all namespaces."""
        return request.list_response(self._host.namespaces, encode=lambda each: self._resource(each, request=request))

    def get(self, request: Request) -> Response:
        """Return one namespace.

        :raises ArmError: it does not exist.
        """
        return Response(200, self._resource(self._existing(request), request=request))

    async def put(self, request: Request) -> Response:
        """Replace the properties of a namespace, or create it.

        :raises ArmError: a member has a value that is not allowed.
        """
        members = request.document.members(*_MEMBERS, _MISPLACED)
        if "location" not in members:
            raise ArmError(400, "location is missing; allowed: any word, such as local", code="LocationRequired")
        async with self._lock:
            name = request.address.names[0]
            hosted = self.find(name)
            now = self._clock.now()
            name_served = name if hosted is None else hosted.name
            new = NamespaceRecord(name=name_served, created=now, updated=now, added=hosted is None)
            current = new if hosted is None else self._current_record(hosted)
            record_is_new = hosted is None
            kept = {name: getattr(current, name) for name in ("created", "added", "sku", "tier")}
            record = self._apply(replace(new, **kept), members=members)
            if hosted is None:
                hosted = await self._add(name)
                _log.info("namespace %s: added", name)
            self._register.put(record)
            _set_tier(hosted, record=record)
        if not record_is_new:
            return Response(200, self._resource(hosted, request=request))
        return Response(200, self._resource(hosted, request=request, state=_CREATED), headers=_POLL_SOON)

    async def update(self, request: Request) -> Response:
        """Change the properties in the body only.

        :raises ArmError: the namespace does not exist, or a member has a value that is not allowed.
        """
        members = request.document.members(*_MEMBERS, _MISPLACED)
        async with self._lock:
            hosted = self._existing(request)
            record = self._apply(self._current_record(hosted), members=members)
            self._register.put(record)
            _set_tier(hosted, record=record)
        return Response(200, self._resource(hosted, request=request))

    async def delete(self, request: Request) -> Response:
        """Stop serving a namespace and delete its content."""
        async with self._lock:
            hosted = self.find(request.address.names[0])
            if hosted is None:
                return Response(204)
            # In this order nothing deleted can come back, whenever the process dies.
            await self._host.remove(hosted.name)
            self._register.remove(hosted.name)
        _log.info("namespace %s: deleted", hosted.name)
        version = quote(request.query["api-version"])
        results = f"{request.origin}{request.raw_path.rstrip('/')}/operationresults/{hosted.name}?api-version={version}"
        return Response(202, headers={"Location": results, **_POLL_SOON})

    def operation_result(self, _: Request) -> Response:
        """Return the result of a deletion: it is complete."""
        return Response(200)

    def location_of(self, hosted: ManagedNamespace) -> str:
        """Return the location of a namespace, which its entities share."""
        return self._current_record(hosted).location

    def check_name(self, request: Request) -> Response:
        """Return whether a name is valid and available."""
        members = request.document.members("name")
        if "name" not in members:
            raise ArmError(400, f"name is missing; allowed: {NAMESPACE_NAMES}")
        name = members["name"].text()
        if not is_namespace_name(name):
            reason, message = "InvalidName", f"name is {name[:100]!r}; allowed: {NAMESPACE_NAMES}"
        elif self.find(name) is not None:
            reason, message = "NameInUse", f"namespace {name!r} exists already"
        else:
            reason, message = "None", ""
        return Response(200, {"nameAvailable": reason == "None", "reason": reason, "message": message})

    async def _add(self, name: str) -> ManagedNamespace:
        if not is_namespace_name(name):
            raise ArmError(400, f"name is {name[:100]!r}; allowed: {NAMESPACE_NAMES}")
        try:
            return await self._host.add(name)
        except (OSError, JournalError) as error:
            message = f"the namespace {name!r} cannot be served: {error}"
            raise ArmError(500, message) from error

    def _existing(self, request: Request) -> ManagedNamespace:
        name = request.address.names[0]
        hosted = self.find(name)
        if hosted is None:
            raise ArmError(
                404,
                f"namespace {name!r} does not exist in the resource group {request.scope.resource_group!r};"
                f" existing: {', '.join(each.name for each in self._host.namespaces)}",
                code="ResourceNotFound",
            )
        return hosted

    def _current_record(self, hosted: ManagedNamespace) -> NamespaceRecord:
        known = self._register.get(hosted.name)
        if known is not None:
            return known
        record = NamespaceRecord(name=hosted.name, created=self._started, updated=self._started)
        tier = hosted.namespace.tier
        return record if tier is None else replace(record, sku={"name": str(tier), "tier": str(tier)})

    def _apply(self, record: NamespaceRecord, *, members: Mapping[str, JsonValue]) -> NamespaceRecord:
        changes: dict[str, Any] = {"updated": self._clock.now()}
        if "location" in members:
            changes["location"] = _region(members["location"].text())
        if "tags" in members:
            changes["tags"] = {name: tag.text() for name, tag in members["tags"].entries().items()}
        if "sku" in members:
            changes["sku"] = _sku(members["sku"])
            changes["tier"] = changes["sku"]["tier"]
        if "identity" in members:
            changes["identity"] = {name: each.value for name, each in members["identity"].entries().items()}
        if "properties" in members:
            changes["properties"] = {**record.properties, **_properties(members["properties"])}
        return replace(record, **changes)

    def _resource(
        self, hosted: ManagedNamespace, *, request: Request, state: tuple[str, str] = _COMPLETE
    ) -> dict[str, object]:
        record = self._current_record(hosted)
        properties = {
            **_DEFAULTS,
            **record.properties,
            "provisioningState": state[0],
            "status": state[1],
            "createdAt": _time(record.created),
            "updatedAt": _time(record.updated),
            "serviceBusEndpoint": f"{hosted.endpoint_address.replace('sb', 'https', 1)}/",
            "metricId": f"{request.scope.subscription}:{hosted.name}",
        }
        document = request.resource(hosted.name, properties=properties)
        document |= {"location": record.location, "tags": record.tags, "sku": record.sku}
        return document if record.identity is None else {**document, "identity": record.identity}


def _region(location: str) -> str:
    """Return a location as the service shows it; one that is no region, such as ``local``, as given."""
    words = _REGION_WORD.findall(location.casefold())
    if "".join(words) != location.casefold():
        return location
    return " ".join(_REGION_NAMES.get(word, word.capitalize()) for word in words)


def _set_tier(hosted: ManagedNamespace, *, record: NamespaceRecord) -> None:
    """Limit a namespace to the tier that a client chose, as the service does; what it holds already stays."""
    if record.tier is not None:
        hosted.namespace.set_tier(Tier(record.tier), units=int(record.sku.get("capacity", 1)))


def _sku(sku: JsonValue) -> dict[str, object]:
    members = sku.members("name", "tier", "capacity")
    if "name" not in members:
        sku.refuse(f"an object with name, one of {', '.join(_SKUS)}")
    name = members["name"].one_of(_SKUS)
    tier = members["tier"].one_of(_SKUS) if "tier" in members else name
    if tier != name:
        members["tier"].refuse(f"{name}, as sku.name")
    capacity = {"capacity": members["capacity"].integer()} if "capacity" in members else {}
    if name == _PREMIUM:
        capacity = {"capacity": 1, **capacity}
    return {"name": name, "tier": tier, **capacity}


def _properties(properties: JsonValue) -> dict[str, object]:
    given = properties.members(*_STORED, *_READ_ONLY)
    return {name: _stored(name, value) for name, value in given.items() if name in _STORED}


def _stored(name: str, value: JsonValue) -> object:
    if name in _WORDS:
        return value.one_of(_WORDS[name])
    return value.boolean() if name in _BOOLEANS else value.value


def _time(milliseconds: int) -> str:
    return format_time(datetime.fromtimestamp(milliseconds / 1000, tz=UTC))
