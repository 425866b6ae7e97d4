"""Who a client is to Microsoft Entra ID: frozen values that get tokens when they are asked.

An identity is what it is made of, ids and perhaps a secret, so a pickle takes it to the process that uses it. The
credential of azure-identity, which no pickle takes and which must be closed, is built for one token and closed again;
``tokens`` keeps the token. An identity is given wherever the SDK takes an asynchronous token credential.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from servicebus_pair.core.options import Secret

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken

__all__ = ["ClientSecret", "DefaultIdentity", "Identity", "ManagedIdentity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(ABC):
    """What all identities share: getting a token. Its ``repr`` holds no secret.

    :param ca_file: file of the authorities that the token service's certificate is checked by; those
        of ``certifi`` when not given.
    """

    ca_file: str | None = None

    async def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:
        """Answer a token for ``scopes``, kept from an earlier request where that is good.

        :param claims: what a service that refused a token asks for; then a new one is requested.
        :param options: ``tenant_id`` and ``enable_cae``, as the SDK passes them.
        :raises azure.core.exceptions.ClientAuthenticationError: the identity is refused, or there is none.
        :raises azure.core.exceptions.ServiceRequestError: the token service cannot be reached.
        """
        # Importing azure-identity takes a tenth of a second: an event loop must not stand still for that.
        tokens = await asyncio.to_thread(import_module, "servicebus_pair.core.tokens")
        answer: AccessToken = await tokens.token_of(self, scopes, claims=claims, options=options)
        return answer

    @abstractmethod
    def credential(self) -> Any:
        """Build the asynchronous credential of azure-identity; the caller closes it."""

    def _tls(self) -> dict[str, Any]:
        return {} if self.ca_file is None else {"connection_verify": self.ca_file}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultIdentity(Identity):
    """What ``DefaultAzureCredential`` finds: environment, workload identity, managed identity, developer tools.

    :param client_id: of a user-assigned managed identity.
    :param tenant_id: of the workload identity.
    :param authority: host of the token service where it is not that of the public cloud.
    """

    client_id: str | None = None
    tenant_id: str | None = None
    authority: str | None = None

    def credential(self) -> Any:
        """Build a ``DefaultAzureCredential``."""
        from azure.identity.aio import DefaultAzureCredential

        settings: dict[str, Any] = _known(
            managed_identity_client_id=self.client_id,
            workload_identity_tenant_id=self.tenant_id,
            authority=self.authority,
        )
        if self.tenant_id is not None:
            settings["additionally_allowed_tenants"] = [self.tenant_id]
        return DefaultAzureCredential(**settings, **self._tls())


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedIdentity(Identity):
    """The managed identity of the machine.

    :param client_id: of a user-assigned one; the system-assigned one when not given.
    """

    client_id: str | None = None

    def credential(self) -> Any:
        """Build a ``ManagedIdentityCredential``."""
        from azure.identity.aio import ManagedIdentityCredential

        return ManagedIdentityCredential(**_known(client_id=self.client_id), **self._tls())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecret(Identity):
    """A service principal with a secret.

    :param tenant_id: id or name of the directory.
    :param client_id: id of the application.
    :param client_secret: one of its secrets.
    :param authority: host or URL of the token service where it is not that of the public cloud.
    """

    tenant_id: str
    client_id: str
    client_secret: Secret
    authority: str | None = None

    def credential(self) -> Any:
        """Build a ``ClientSecretCredential``."""
        from azure.identity import AzureAuthorityHosts
        from azure.identity.aio import ClientSecretCredential

        public = {value for name, value in vars(AzureAuthorityHosts).items() if name.startswith("AZURE_")}
        # An authority of one's own is not known to the public cloud, which would be asked about it.
        own = self.authority is not None and self.authority.removeprefix("https://").rstrip("/") not in public
        return ClientSecretCredential(
            self.tenant_id,
            self.client_id,
            self.client_secret.reveal(),
            disable_instance_discovery=own,
            **_known(authority=self.authority),
            **self._tls(),
        )


def _known(**settings: str | None) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
