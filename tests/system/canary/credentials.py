"""Connections with a distinct canary secret in every credential field."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from tests.system.demo.namespaces import KEY, Namespace

EXPIRY: Final = 4_102_444_800

CANARIES: Final[Mapping[str, str]] = {
    **{name: f"c4nary{name}{secrets.token_hex(6)}" for name in ("key", "official", "signature", "secret", "broken")},
    "true": KEY,
}
"""Canary secrets by kind of connection; letters and digits only, which no quoting changes."""


def connections(primary: Namespace, secondary: Namespace) -> list[dict[str, Any]]:
    """Return connections in the format of Airflow's REST API."""
    namespaces = [
        body(
            "key", "servicebus_namespace", extra={"connection_string": with_wrong_key(primary, "key"), **place(primary)}
        ),
        body(
            "signature",
            "servicebus_namespace",
            extra={"connection_string": with_wrong_signature(primary), **place(primary)},
        ),
        body(
            "secret",
            "servicebus_namespace",
            host=f"{primary.served.host}:{primary.amqp_port}",
            login="servicebus-emulator",
            password=f"{CANARIES['secret']}/+=",
            extra={
                **place(primary),
                "authentication": "client_secret",
                "tenant_id": "contoso.example",
                "authority": f"https://{primary.administration}",
                "ca_file": str(primary.served.ca_file),
                "emulator": True,
            },
        ),
    ]
    secondary_fields = inline("secondary", secondary)
    primary_place = {f"primary_{name}": value for name, value in place(primary).items()}
    pairs = {
        each["connection_id"]: {"primary_conn_id": each["connection_id"], **secondary_fields} for each in namespaces
    }
    pairs["official"] = {"primary_conn_id": "official", **primary_place, **secondary_fields}
    broken = {**inline("primary", primary), "primary_client_secret": CANARIES["broken"], "primary_transport": "none"}
    return [
        *namespaces,
        *(body(f"{kind}_pair", "servicebus_pair", extra=quick(extra)) for kind, extra in pairs.items()),
        *(body(f"{kind}_swapped", "servicebus_pair", extra=swapped(extra)) for kind, extra in pairs.items()),
        body("broken_pair", "servicebus_pair", extra={**broken, **secondary_fields}),
        body("stored_pair", "servicebus_pair", extra=pair(primary, secondary)),
    ]


def official(primary: Namespace) -> str:
    """Return a connection of the official type for an environment variable.

    It is not stored in Airflow's database: its key is in ``schema``, which Airflow neither encrypts nor masks in its
    audit log.
    """
    return json.dumps({"conn_type": "azure_service_bus", "schema": with_wrong_key(primary, "official")})


def pair(primary: Namespace, secondary: Namespace, **settings: Any) -> dict[str, Any]:
    """Return the extra of a valid pair, with ``settings`` overridden."""
    extra = {**inline("primary", primary), **inline("secondary", secondary), "failover_interval": 1, **settings}
    return quick(extra)


def body(conn_id: str, conn_type: str, *, extra: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"connection_id": conn_id, "conn_type": conn_type, "extra": json.dumps(extra or {}), **fields}


def place(namespace: Namespace) -> dict[str, str]:
    return {"namespace": namespace.name, "administration": namespace.administration}


def inline(side: str, namespace: Namespace) -> dict[str, Any]:
    """Return the settings of one side of a pair, with the valid key."""
    settings = {"connection_string": namespace.connection_string, **place(namespace)}
    return {f"{side}_{name}": value for name, value in settings.items()}


def quick(extra: dict[str, Any]) -> dict[str, Any]:
    """Add a ping interval of one second, to keep the test short."""
    return {**extra, "ping_primary_interval": 1, "backlog_queue_count": 2}


def swapped(extra: dict[str, Any]) -> dict[str, Any]:
    """Swap primary and secondary, so that the secondary rejects the credential."""
    sides = {"primary": "secondary", "secondary": "primary"}
    named = {name.partition("_"): value for name, value in extra.items()}
    return quick({f"{sides[side]}_{field}": value for (side, _, field), value in named.items()})


def with_wrong_key(namespace: Namespace, name: str) -> str:
    """Return a connection string with an invalid key that contains characters quoted in URLs."""
    return namespace.connection_string.replace(KEY, f"{CANARIES[name]}/+=")


def with_wrong_signature(namespace: Namespace) -> str:
    """Return a connection string with an invalid signature."""
    audience = quote(f"sb://{namespace.served.host}", safe="")
    signature = f"SharedAccessSignature sr={audience}&sig={CANARIES['signature']}%2bsig%3d&se={EXPIRY}&skn=Root"
    at = f"Endpoint=sb://{namespace.served.host}:{namespace.amqp_port}"
    return f"{at};SharedAccessSignature={signature};UseDevelopmentEmulator=true;"
