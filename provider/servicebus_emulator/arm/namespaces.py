"""Namespaces: listed, shown, put and deleted; the network rules and the name that one may have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from servicebus_emulator.admin.fields import format_time
from servicebus_emulator.arm.addresses import PROVIDER
from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.host import Host, Hosted
from servicebus_emulator.arm.register import NamespaceRecord, Register
from servicebus_emulator.arm.values import Value
from servicebus_emulator.engine.clock import Clock
from servicebus_emulator.engine.journal import JournalError
from servicebus_emulator.naming import NAMESPACE_NAMES, is_namespace_name

__all__ = ["Namespaces"]

_SKUS: Final = ("Basic", "Standard", "Premium")
_RESOURCE: Final = ("id", "name", "type", "systemData", "location", "tags", "sku", "identity", "properties")
# Azure passes it over where it does not belong; the SDK's own tests put it there.
_MISPLACED: Final = "disableLocalAuth"
_READ_ONLY: Final = ("provisioningState", "status", "createdAt", "updatedAt", "serviceBusEndpoint", "metricId")
_DEFAULTS: Final[Mapping[str, object]] = {
    "minimumTlsVersion": "1.2",
    "publicNetworkAccess": "Enabled",
    "disableLocalAuth": False,
    "zoneRedundant": False,
    "privateEndpointConnections": [],
}
# Kept and shown; nothing here reads them.
_KEPT: Final = (
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

_log = logging.getLogger(__name__)


class Namespaces:
    """The namespaces of a host, as resources.

    A namespace that is put and not there is served from then on, and one that is deleted is gone with all
    that it held: the operations are over when they are answered, which ends the wait of a client's poller.

    :param host: serves the namespaces.
    :param register: what is known of them beside their entities.
    """

    def __init__(self, host: Host, *, register: Register, clock: Clock) -> None:
        self._host: Final = host
        self._register: Final = register
        self._clock: Final = clock
        self._started: Final = clock.now()
        self._one_at_a_time: Final = asyncio.Lock()

    async def restore(self) -> None:
        """Have the namespaces served that were made before a restart, unless they are."""
        for record in self._register.records:
            if record.added and self.find(record.name) is None:
                await self._host.add(record.name)

    def find(self, name: str) -> Hosted | None:
        """Return a namespace; None = there is none of the name."""
        return next((each for each in self._host.namespaces if each.name.casefold() == name.casefold()), None)

    def list(self, call: Call) -> Answer:
        """Answer with all namespaces."""
        return call.list(self._host.namespaces, show=lambda each: self._shown(each, call=call))

    def get(self, call: Call) -> Answer:
        """Answer with one namespace.

        :raises ArmError: when there is none of the name.
        """
        return Answer(200, self._shown(self._existing(call), call=call))

    async def put(self, call: Call) -> Answer:
        """Describe a namespace anew, or serve a new one.

        :raises ArmError: naming the member, its value and what is allowed.
        """
        wanted = call.document.members(*_RESOURCE, _MISPLACED)
        if "location" not in wanted:
            raise ArmError(
                400, code="LocationRequired", message="location is missing; allowed: any word, such as local"
            )
        async with self._one_at_a_time:
            name = call.address.names[0]
            hosted = self.find(name)
            fresh = self._fresh(name if hosted is None else hosted.name, added=hosted is None)
            kept = fresh if hosted is None else self._record(hosted)
            record = self._changed(replace(fresh, created=kept.created, added=kept.added), wanted=wanted)
            if hosted is None:
                hosted = await self._add(name)
                _log.info("namespace %s: added", name)
            self._register.put(record)
        return Answer(200, self._shown(hosted, call=call))

    async def update(self, call: Call) -> Answer:
        """Change what the body holds, and leave the rest.

        :raises ArmError: when there is no such namespace, or naming the member, its value and what is allowed.
        """
        wanted = call.document.members(*_RESOURCE, _MISPLACED)
        async with self._one_at_a_time:
            hosted = self._existing(call)
            self._register.put(self._changed(self._record(hosted), wanted=wanted))
        return Answer(200, self._shown(hosted, call=call))

    async def delete(self, call: Call) -> Answer:
        """Serve a namespace no longer, and forget what it held."""
        async with self._one_at_a_time:
            hosted = self.find(call.address.names[0])
            if hosted is None:
                return Answer(204)
            # In this order nothing that was deleted can come back, whenever the process dies.
            await self._host.remove(hosted.name)
            self._register.remove(hosted.name)
        _log.info("namespace %s: deleted", hosted.name)
        return Answer(200)

    def check_name(self, call: Call) -> Answer:
        """Answer whether a namespace could have a name."""
        members = call.document.members("name")
        if "name" not in members:
            raise ArmError(400, code="BadRequest", message=f"name is missing; allowed: {NAMESPACE_NAMES}")
        name = members["name"].text()
        if not is_namespace_name(name):
            reason, message = "InvalidName", f"name is {name[:100]!r}; allowed: {NAMESPACE_NAMES}"
        elif self.find(name) is not None:
            reason, message = "NameInUse", f"there is a namespace {name!r} already"
        else:
            reason, message = "None", ""
        return Answer(200, {"nameAvailable": reason == "None", "reason": reason, "message": message})

    async def _add(self, name: str) -> Hosted:
        if not is_namespace_name(name):
            raise ArmError(400, code="BadRequest", message=f"name is {name[:100]!r}; allowed: {NAMESPACE_NAMES}")
        try:
            return await self._host.add(name)
        except (OSError, JournalError) as error:
            message = f"the namespace {name!r} cannot be served: {error}"
            raise ArmError(500, code="InternalError", message=message) from error

    def _existing(self, call: Call) -> Hosted:
        name = call.address.names[0]
        hosted = self.find(name)
        if hosted is None:
            raise ArmError(
                404,
                code="ResourceNotFound",
                message=f"there is no namespace {name!r} in the resource group {call.scope.resource_group!r};"
                f" there are: {', '.join(each.name for each in self._host.namespaces)}",
            )
        return hosted

    def _fresh(self, name: str, *, added: bool) -> NamespaceRecord:
        now = self._clock.now()
        return NamespaceRecord(name=name, created=now, updated=now, added=added)

    def _record(self, hosted: Hosted) -> NamespaceRecord:
        known = self._register.get(hosted.name)
        return (
            NamespaceRecord(name=hosted.name, created=self._started, updated=self._started) if known is None else known
        )

    def _changed(self, record: NamespaceRecord, *, wanted: Mapping[str, Value]) -> NamespaceRecord:
        changes: dict[str, Any] = {"updated": self._clock.now()}
        if "location" in wanted:
            changes["location"] = wanted["location"].text()
        if "tags" in wanted:
            changes["tags"] = {name: tag.text() for name, tag in wanted["tags"].entries().items()}
        if "sku" in wanted:
            changes["sku"] = _sku(wanted["sku"])
        if "identity" in wanted:
            changes["identity"] = {name: each.value for name, each in wanted["identity"].entries().items()}
        if "properties" in wanted:
            changes["properties"] = {**record.properties, **_properties(wanted["properties"])}
        return replace(record, **changes)

    def _shown(self, hosted: Hosted, *, call: Call) -> dict[str, object]:
        record = self._record(hosted)
        document: dict[str, object] = {
            "id": f"/subscriptions/{call.scope.subscription}/resourceGroups/{call.scope.resource_group}"
            f"/providers/{PROVIDER}/namespaces/{hosted.name}",
            "name": hosted.name,
            "type": f"{PROVIDER}/namespaces",
            "location": record.location,
            "tags": record.tags,
            "sku": record.sku,
            "properties": {
                **_DEFAULTS,
                **record.properties,
                "provisioningState": "Succeeded",
                "status": "Active",
                "createdAt": _time(record.created),
                "updatedAt": _time(record.updated),
                "serviceBusEndpoint": f"{hosted.endpoint_address.replace('sb', 'https', 1)}/",
                "metricId": f"{call.scope.subscription}:{hosted.name}",
            },
        }
        return document if record.identity is None else {**document, "identity": record.identity}


def _sku(sku: Value) -> dict[str, object]:
    members = sku.members("name", "tier", "capacity")
    if "name" not in members:
        sku.refuse(f"an object with name, one of {', '.join(_SKUS)}")
    name = members["name"].one_of(_SKUS)
    tier = members["tier"].one_of(_SKUS) if "tier" in members else name
    if tier != name:
        members["tier"].refuse(f"{name}, as sku.name")
    capacity = {"capacity": members["capacity"].integer()} if "capacity" in members else {}
    return {"name": name, "tier": tier, **capacity}


def _properties(properties: Value) -> dict[str, object]:
    given = properties.members(*_KEPT, *_READ_ONLY)
    return {name: _kept(name, value) for name, value in given.items() if name in _KEPT}


def _kept(name: str, value: Value) -> object:
    if name in _WORDS:
        return value.one_of(_WORDS[name])
    return value.boolean() if name in _BOOLEANS else value.value


def _time(milliseconds: int) -> str:
    return format_time(datetime.fromtimestamp(milliseconds / 1000, tz=UTC))
