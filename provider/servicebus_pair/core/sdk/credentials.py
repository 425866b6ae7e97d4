"""Microsoft Entra ID identities: picklable token credentials for the SDK.

An identity holds ids and perhaps a secret, so it can be pickled to the process that uses it. The azure-identity
credential, which cannot be pickled and must be closed, is built for one token request and closed again; ``token_cache``
keeps the token. The SDK accepts an identity as an asynchronous token credential.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.model.checks import no_secret
from servicebus_pair.core.model.daemon_thread import DaemonThread
from servicebus_pair.core.model.options import Secret

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken

# The event loop's own pool may be full of calls that hang.
_IMPORTS: Final = DaemonThread("azure-identity import")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(ABC):
    """Base class of all identities. The ``repr`` holds no secret.

    :param ca_file: CA bundle for the token service's certificate; default is that of ``certifi``.
    :raises ConfigurationError: a field that is not for secrets holds one.
    """

    ca_file: str | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            if not isinstance(getattr(self, each.name), Secret):
                no_secret(each.name, getattr(self, each.name))

    async def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:
        """Return a token for ``scopes``, cached where possible.

        :param claims: claims challenge of a service that refused a token; forces a new request.
        :param options: ``tenant_id`` and ``enable_cae``, as the SDK passes them.
        :raises azure.core.exceptions.ClientAuthenticationError: the identity was refused, or none was found.
        :raises azure.core.exceptions.ServiceRequestError: the token service cannot be reached.
        """
        # Importing azure-identity blocks for 0.1 s, so it happens outside the event loop.
        token_cache = await asyncio.get_running_loop().run_in_executor(
            _IMPORTS, import_module, "servicebus_pair.core.sdk.token_cache"
        )
        token: AccessToken = await token_cache.cached_token(self, scopes, claims=claims, options=options)
        return token

    @abstractmethod
    def credential(self) -> Any:
        """Build the asynchronous azure-identity credential; the caller closes it."""

    def _tls(self) -> dict[str, Any]:
        return {} if self.ca_file is None else {"connection_verify": self.ca_file}

    def _bounded(self) -> dict[str, Any]:
        """Return the transport to an authority that somebody else may run."""
        from servicebus_pair.core.sdk.http.guarded_transport import BoundedTransport

        return {"transport": BoundedTransport(ca_file=self.ca_file)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultIdentity(Identity):
    """What ``DefaultAzureCredential`` finds: environment, workload identity, managed identity, developer tools.

    :param client_id: client id of a user-assigned managed identity.
    :param tenant_id: tenant of the workload identity.
    :param authority: host of the token service, if not the public cloud's.
    """

    client_id: str | None = None
    tenant_id: str | None = None
    authority: str | None = None

    def credential(self) -> Any:
        """Build a ``DefaultAzureCredential``."""
        from azure.identity.aio import DefaultAzureCredential

        settings: dict[str, Any] = _non_null(
            managed_identity_client_id=self.client_id,
            workload_identity_tenant_id=self.tenant_id,
            authority=self.authority,
        )
        if self.tenant_id is not None:
            settings["additionally_allowed_tenants"] = [self.tenant_id]
        return DefaultAzureCredential(**settings, **(self._tls() if self.authority is None else self._bounded()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedIdentity(Identity):
    """The managed identity of the machine.

    :param client_id: client id of a user-assigned identity; default is the system-assigned one.
    """

    client_id: str | None = None

    def credential(self) -> Any:
        """Build a ``ManagedIdentityCredential``."""
        from azure.identity.aio import ManagedIdentityCredential

        return ManagedIdentityCredential(**_non_null(client_id=self.client_id), **self._tls())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecret(Identity):
    """A service principal with a secret.

    :param tenant_id: id or name of the directory.
    :param client_id: id of the application.
    :param client_secret: one of its secrets.
    :param authority: host or URL of the token service, if not the public cloud's.
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
        # Instance discovery asks the public cloud about the authority, which does not know a private one.
        private = self.authority is not None and self.authority.removeprefix("https://").rstrip("/") not in public
        return ClientSecretCredential(
            self.tenant_id,
            self.client_id,
            self.client_secret.reveal(),
            disable_instance_discovery=private,
            **_non_null(authority=self.authority),
            **self._bounded(),
        )


def _non_null(**settings: str | None) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
