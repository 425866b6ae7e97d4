"""The embedded Service Bus of one worker process, reachable under an Azure host name."""

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
from servicebus_emulator.security.settings import SECRET_VARIABLE
from tests.conformance.certificate import identity_files, trust_in_process
from tests.conformance.host_resolution import AMQPS, HTTPS, SUFFIX, redirect_hosts

NAMESPACE: Final = "conformance"
_POLICY: Final = "RootManageSharedAccessKey"
_TENANT: Final = "conformance"

_services: list[EmbeddedService] = []


def current_service() -> EmbeddedService:
    return _services[0]


class EmbeddedService:
    """An embedded Service Bus for one worker process.

    After :meth:`open` this process resolves the namespace's host name to it and trusts its certificate.

    :param folder: folder of the certificate.
    """

    def __init__(self, folder: Path) -> None:
        self._identity = identity_files(folder)
        certificate = ["--certificate", str(self._identity.certificate), "--key", str(self._identity.key)]
        # Its secret is well known, so beside a key of our own it has to be named.
        os.environ[SECRET_VARIABLE] = DEVELOPMENT_CLIENT.secret
        options = [*certificate, "--client", DEVELOPMENT_CLIENT.id, "--tier", "Standard"]
        self._process = EmulatorProcess([NAMESPACE], key=self.key, options=options)

    def open(self) -> None:
        """Start the embedded Service Bus and configure this process."""
        self._process.start()
        served = self._process[NAMESPACE]
        # The emulator serves AMQP, AMQP over WebSocket and HTTP on the same port.
        redirect_hosts({(self.host, AMQPS): served.amqp_port, (self.host, HTTPS): served.amqp_port})
        trust_in_process(self._identity)
        os.environ.update(self.settings)
        _services.append(self)

    def close(self) -> None:
        self._process.stop()

    @property
    def host(self) -> str:
        return NAMESPACE + SUFFIX

    @property
    def key(self) -> str:
        return "a key of the conformance run"

    def connection_string(self, policy: str = _POLICY, *, key: str | None = None, entity: str | None = None) -> str:
        path = "" if entity is None else f";EntityPath={entity}"
        chosen = self.key if key is None else key
        return f"Endpoint=sb://{self.host}/;SharedAccessKeyName={policy};SharedAccessKey={chosen}{path}"

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            "AZURE_TEST_RUN_LIVE": "true",
            "SERVICEBUS_ENDPOINT_SUFFIX": SUFFIX,
            "SERVICEBUS_RESOURCE_GROUP": Scope().resource_group,
            # Without it, the tests disable shared access signatures.
            "AZURESUBSCRIPTION_SERVICE_CONNECTION_ID": "conformance",
            "SERVICEBUS_CONNECTION_STR": self.connection_string(),
            "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": self.host,
            "SERVICEBUS_SAS_POLICY": _POLICY,
            "SERVICEBUS_SAS_KEY": self.key,
        }

    def credential(self, *, is_async: bool) -> Any:
        """Return a credential with all rights, from the embedded Service Bus's token endpoint."""
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
