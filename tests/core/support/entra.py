"""Two namespaces that accept tokens of the emulated Microsoft Entra ID."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, Client, Role

OWNER = DEVELOPMENT_CLIENT
SENDER = Client(id="sender", secret="s3nd-c4nary", role=Role.SENDER)


@asynccontextmanager
async def open_entra_namespaces() -> AsyncIterator[Emulator]:
    """Start the namespaces ``contoso``, with the queue ``flights``, and ``contoso-dr``."""
    async with Emulator(["contoso", "contoso-dr"], clients=(OWNER, SENDER)) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator


def pair_settings(
    emulator: Emulator, *, client: Client = OWNER, through_arm: bool = False, **more: Any
) -> dict[str, Any]:
    """Return the settings of a pair that authenticates with a client secret; ``more`` override them."""
    settings: dict[str, Any] = {"backlog_queue_count": 2, "failover_interval": 0, "ping_primary_interval": 1}
    for side, name in (("primary", "contoso"), ("secondary", "contoso-dr")):
        settings |= {f"{side}_{key}": value for key, value in _endpoint_settings(emulator[name], client).items()}
    if through_arm:
        settings |= {
            "secondary_subscription_id": Scope().subscription,
            "secondary_resource_group": Scope().resource_group,
            "secondary_management_endpoint": emulator.arm_url,
        }
    return {**settings, **more}


def _endpoint_settings(hosted: HostedNamespace, client: Client) -> Mapping[str, Any]:
    return {
        "authentication": "client_secret",
        "host": f"{hosted.host}:{hosted.amqp_port}",
        "namespace": hosted.name,
        "administration": f"{hosted.host}:{hosted.admin_port}",
        "tenant_id": "contoso.example",
        "client_id": client.id,
        "client_secret": client.secret,
        "authority": f"https://{hosted.host}:{hosted.admin_port}",
        "ca_file": str(hosted.ca_file),
        "emulator": True,
    }
