"""The official client of Azure Resource Manager over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from azure.core.credentials import AccessToken
from azure.mgmt.servicebus.aio import ServiceBusManagementClient

from servicebus_emulator import Emulator
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.model.clock import SystemClock
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, MANAGEMENT, TokenIssuer

SCOPE = Scope()
GROUP = SCOPE.resource_group
PREFIX = f"/subscriptions/{SCOPE.subscription}/resourceGroups/{GROUP}/providers/Microsoft.ServiceBus/namespaces/contoso"


def bearer_token(*scopes: str) -> str:
    """Return the token that any process issues to the well-known client."""
    [scope] = scopes if len(scopes) > 0 else (f"{MANAGEMENT}/.default",)
    issuer = TokenIssuer([DEVELOPMENT_CLIENT], clock=SystemClock())
    client = DEVELOPMENT_CLIENT
    return issuer.issue(client.id, client.secret, scope=scope, tenant="t", issuer="https://sts").text


class Bearer:
    """A credential that issues its own tokens."""

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(bearer_token(*scopes), 2**31)

    async def close(self) -> None:
        """Close nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""


@asynccontextmanager
async def manage(
    url: str, *, ca_file: Path, subscription: str = SCOPE.subscription
) -> AsyncIterator[ServiceBusManagementClient]:
    client = ServiceBusManagementClient(
        Bearer(),
        subscription,
        base_url=url,
        connection_verify=str(ca_file),
        retry_total=0,
    )
    async with client:
        yield client


@asynccontextmanager
async def managed(emulator: Emulator) -> AsyncIterator[ServiceBusManagementClient]:
    async with manage(emulator.arm_url, ca_file=emulator.ca_file) as client:
        yield client
