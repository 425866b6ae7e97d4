"""What one process of the test run works with: an embedded Service Bus of its own, under a host name of the service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from azure.identity import ClientSecretCredential
from azure.identity.aio import ClientSecretCredential as AsyncClientSecretCredential

from servicebus_emulator import EmulatorProcess
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, MANAGEMENT
from tests.conformance.names import AMQPS, HTTPS, SUFFIX, resolve_here
from tests.conformance.trust import identity_in, trust

__all__ = ["NAMESPACE", "Lane", "current_lane"]

NAMESPACE: Final = "conformance"
_POLICY: Final = "RootManageSharedAccessKey"
_TENANT: Final = "conformance"

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
        certificate = ["--certificate", str(self._identity.certificate), "--key", str(self._identity.key)]
        self._process = EmulatorProcess([NAMESPACE], key=self.key, options=certificate)

    def open(self) -> None:
        """Start the embedded Service Bus and prepare this process for it."""
        self._process.start()
        served = self._process[NAMESPACE]
        # Each port takes all: AMQP, AMQP over WebSocket and HTTP.
        resolve_here({(self.host, AMQPS): served.amqp_port, (self.host, HTTPS): served.amqp_port})
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
        return "a key of the conformance run"

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
            "SERVICEBUS_RESOURCE_GROUP": Scope().resource_group,
            # Tests that run outside of a pipeline would switch shared access signatures off.
            "AZURESUBSCRIPTION_SERVICE_CONNECTION_ID": "conformance",
            "SERVICEBUS_CONNECTION_STR": self.connection_string(),
            "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": self.host,
            "SERVICEBUS_SAS_POLICY": _POLICY,
            "SERVICEBUS_SAS_KEY": self.key,
        }

    def credential(self, *, is_async: bool) -> Any:
        """Return an identity that may do everything, by a token of the embedded Service Bus's own endpoint."""
        kind = AsyncClientSecretCredential if is_async else ClientSecretCredential
        return kind(
            _TENANT,
            DEVELOPMENT_CLIENT.id,
            DEVELOPMENT_CLIENT.secret,
            authority=self.host,
            disable_instance_discovery=True,
        )

    def resource_manager(self, client_class: Any) -> Any:
        """Return a client of the embedded Service Bus's ARM interface.

        :param client_class: of azure-mgmt-servicebus.
        """
        return client_class(
            self.credential(is_async=False),
            Scope().subscription,
            base_url=self._process.arm_url,
            credential_scopes=[f"{MANAGEMENT}/.default"],
        )
