"""Controls a namespace in another process over HTTP."""

from __future__ import annotations

import html
import json
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree.ElementTree import Element

from servicebus_emulator.admin.atom.documents import Entry, entry_document
from servicebus_emulator.admin.atom.fields import RuntimeProperties, encode
from servicebus_emulator.admin.atom.rules import encode_rule
from servicebus_emulator.admin.resources import Entity, Resource, Rule, Subscription, url_path
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY
from servicebus_emulator.engine.model.descriptions import (
    Description,
    MessageCounts,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.rule_descriptions import DEFAULT_RULE, DEFAULT_RULE_NAME
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entity_registry import EntityTimes
from servicebus_emulator.faults import Fault
from servicebus_emulator.faults.codec import fault_document
from servicebus_emulator.namespace_server import NamespaceAddress
from servicebus_emulator.security.sas import sign

_TIMEOUT: Final = 10.0
_TOKEN_SECONDS: Final = 3600
_API_VERSION: Final = "2021-05"
_VERSION: Final = f"api-version={_API_VERSION}"
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RefusedError(RuntimeError):
    """The other process refused a request.

    :ivar status: the status code of the response.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteNamespace(NamespaceAddress):
    """A namespace in another process.

    All methods wait up to 10 s for the response. They raise :class:`RefusedError` when the request is refused and
    ``OSError`` without a response.

    :ivar ca_file: the certificate authorities that TLS clients must trust: the SDK's option ``connection_verify``.
    :ivar key: the key of the root rule.
    """

    name: str
    host: str
    amqp_port: int
    admin_port: int
    ca_file: Path
    key: str = field(default=DEFAULT_KEY, repr=False)

    # Entities

    def create(self, description: Description) -> None:
        """Create a queue, a topic, or a subscription with its rules."""
        runtime = RuntimeProperties(
            counts=MessageCounts(),
            times=EntityTimes(created=_NEVER, updated=_NEVER, accessed=_NEVER),
            size_in_bytes=0,
            subscription_count=0,
        )
        self._put(_resource_of(description), content=encode(description, runtime=runtime, version=_API_VERSION))
        if isinstance(description, SubscriptionDescription):
            self._create_rules(description)

    def create_queue(self, path: str, **fields: Any) -> str:
        """Create a queue and return its path.

        :param fields: of :class:`~servicebus_emulator.engine.model.descriptions.QueueDescription`; a duration may be a
            ``timedelta``.
        :raises DescriptionError: when a field is invalid.
        """
        self.create(QueueDescription(path, **_durations(fields)))
        return path

    def create_topic(self, path: str, **fields: Any) -> str:
        """Create a topic and return its path. See :meth:`create_queue`."""
        self.create(TopicDescription(path, **_durations(fields)))
        return path

    def create_subscription(self, topic: str, name: str, **fields: Any) -> str:
        """Create a subscription, which receives everything unless `rules` are given, and return its name.

        See :meth:`create_queue`.
        """
        self.create(SubscriptionDescription(topic, name, **_durations(fields)))
        return name

    def delete(self, path: str) -> None:
        """Delete a queue, a topic, or ``topic/Subscriptions/name``, with all messages."""
        self._ask("DELETE", f"/{quote(path)}?{_VERSION}")

    # Faults and time

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults in force, with their ids and numbers of strikes."""
        found: list[dict[str, Any]] = self._ask_json("GET", "/$faults")["faults"]
        return found

    def set_fault(self, fault: Fault) -> str:
        """Set a fault; return the id by which it is cleared."""
        armed = self._ask_json("POST", "/$faults", document=fault_document(fault))
        return str(armed["id"])

    def clear_faults(self, fault_id: str | None = None) -> list[dict[str, Any]]:
        """Clear one fault, or all (None); return those that were in force, with their numbers of strikes."""
        cleared = self._ask_json("DELETE", "/$faults" if fault_id is None else f"/$faults/{quote(fault_id)}")
        found: list[dict[str, Any]] = cleared["faults"]
        return found

    def shift_time(self, by: timedelta) -> None:
        """Move the clock of the process forward, if it was started with ``allow_time_shift``."""
        self._ask_json("POST", "/$time", document={"shift_seconds": by.total_seconds()})

    def health(self) -> dict[str, Any]:
        """Return the response of ``GET /health``."""
        return self._ask_json("GET", "/health")

    # Requests

    def _create_rules(self, description: SubscriptionDescription) -> None:
        if description.rules == (DEFAULT_RULE,):
            return
        topic, name = description.topic_path, description.name
        self._ask("DELETE", f"{url_path(Rule(topic, name, DEFAULT_RULE_NAME))}?{_VERSION}")
        for rule in description.rules:
            self._put(Rule(topic, name, rule.name), content=encode_rule(rule, created=_NEVER))

    def _put(self, resource: Resource, *, content: Element) -> None:
        path = url_path(resource)
        entry = Entry(title=path, address=path, published=_NEVER, updated=_NEVER, content=content)
        body = entry_document(entry, author=self.name)
        self._ask("PUT", f"{path}?{_VERSION}", body=body, kind="application/xml")

    def _ask_json(self, method: str, path: str, *, document: object = None) -> dict[str, Any]:
        body = None if document is None else json.dumps(document).encode()
        answer: dict[str, Any] = json.loads(self._ask(method, path, body=body))
        return answer

    def _ask(self, method: str, path: str, *, body: bytes | None = None, kind: str = "application/json") -> bytes:
        address = f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.admin_port}"
        headers = {"Content-Type": kind, "Authorization": self._token(address)}
        request = urllib.request.Request(address + path, data=body, method=method, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310 - our own address
                answered: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = _reason_of(error.read().decode(errors="replace"))
            message = f"{method} {path.partition('?')[0]} of namespace {self.name!r}: status {error.code}: {reason}"
            raise RefusedError(message, status=error.code) from None
        return answered

    def _token(self, resource: str) -> str:
        return sign(resource, rule=ROOT_POLICY, key=self.key, expires=int(time.time()) + _TOKEN_SECONDS)


def _reason_of(answered: str) -> str:
    detail = re.search(r"<Detail>(.*?)</Detail>", answered, flags=re.DOTALL)
    return answered if detail is None else html.unescape(detail[1])


def _resource_of(description: Description) -> Resource:
    if isinstance(description, SubscriptionDescription):
        return Subscription(description.topic_path, description.name)
    return Entity(description.path)


def _durations(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: TimeSpan.of(value) if isinstance(value, timedelta) else value for name, value in fields.items()}
