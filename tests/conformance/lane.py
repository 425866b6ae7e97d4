"""What one process of the test run works with: an embedded Service Bus of its own, under a host name of the service."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from azure.core.credentials import AccessToken

from servicebus_emulator import EmulatorProcess
from tests.conformance.door import open_doors
from tests.conformance.management import ResourceManager
from tests.conformance.names import AMQPS, HTTPS, SUFFIX, resolve_here
from tests.conformance.trust import identity_in, trust

__all__ = ["Lane", "current_lane"]

NAMESPACE: Final = "conformance"
_POLICY: Final = "RootManageSharedAccessKey"

_lanes: list[Lane] = []


def current_lane() -> Lane:
    """Return the lane of this process."""
    return _lanes[0]


class Lane:
    """An embedded Service Bus, and how tests find it.

    From :meth:`open` on, this process resolves the namespace's host name to it and trusts its certificate.

    :param folder: where the certificate is.
    """

    def __init__(self, folder: Path) -> None:
        self._identity = identity_in(folder)
        self._process = EmulatorProcess([NAMESPACE])

    def open(self) -> None:
        """Start the embedded Service Bus and prepare this process for it."""
        self._process.start()
        served = self._process[NAMESPACE]
        amqps, https = open_doors(self._identity, [served.amqp_port, served.admin_port])
        resolve_here({(self.host, AMQPS): amqps, (self.host, HTTPS): https})
        trust(self._identity)
        os.environ.update(self.settings)
        _lanes.append(self)

    def close(self) -> None:
        """Stop the embedded Service Bus."""
        self._process.stop()

    @property
    def host(self) -> str:
        """The namespace's host name, as clients write it."""
        return NAMESPACE + SUFFIX

    @property
    def key(self) -> str:
        """The namespace's key."""
        return "SAS_KEY_VALUE"

    def connection_string(self, policy: str = _POLICY, *, key: str | None = None, entity: str | None = None) -> str:
        """Return a connection string of a policy."""
        path = "" if entity is None else f";EntityPath={entity}"
        chosen = self.key if key is None else key
        return f"Endpoint=sb://{self.host}/;SharedAccessKeyName={policy};SharedAccessKey={chosen}{path}"

    @property
    def settings(self) -> Mapping[str, str]:
        """What the tests find in their environment."""
        return {
            "AZURE_TEST_RUN_LIVE": "true",
            "SERVICEBUS_ENDPOINT_SUFFIX": SUFFIX,
            "SERVICEBUS_RESOURCE_GROUP": "local",
            "SERVICEBUS_CONNECTION_STR": self.connection_string(),
            "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": self.host,
            "SERVICEBUS_SAS_POLICY": _POLICY,
            "SERVICEBUS_SAS_KEY": self.key,
        }

    def credential(self, *, is_async: bool) -> Any:
        """Return an identity that may do everything."""
        return AsyncBearer() if is_async else Bearer()

    def resource_manager(self, client_class: Any) -> Any:  # noqa: ARG002  there is one kind only
        """Return a client of the resource manager."""
        return self._manager

    @cached_property
    def _manager(self) -> ResourceManager:
        return ResourceManager(self, namespace=NAMESPACE)


class Bearer:
    """Hands out bearer tokens."""

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        """Return a token, good for an hour."""
        return AccessToken("token", int(time.time()) + 3600)


class AsyncBearer:
    """Hands out bearer tokens to asynchronous clients."""

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        """Return a token, good for an hour."""
        return Bearer().get_token()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hold nothing."""
