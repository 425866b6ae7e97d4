"""A secret of its own in every credential field of every type of connection."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.system.demo.namespaces import KEY, PRIMARY, SECONDARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.system.demo.namespaces import Namespace

__all__ = ["CANARIES", "connections", "official", "pair"]

FAR: Final = 4_102_444_800

CANARIES: Final[Mapping[str, str]] = {
    **{name: f"c4nary{name}{secrets.token_hex(6)}" for name in ("key", "official", "signature", "secret", "broken")},
    "true": KEY,
}
"""What is searched for, by the connection that has it; letters and digits, which no quoting changes."""


def connections(primary: Namespace, secondary: Namespace) -> list[dict[str, Any]]:
    """Return connections as Airflow's REST API takes them."""
    namespaces = [
        body("key", "servicebus_namespace", extra={"connection_string": wrong(primary, "key"), **place(primary)}),
        body("signature", "servicebus_namespace", extra={"connection_string": signed(primary), **place(primary)}),
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
    second = inline("secondary", secondary)
    beside = {f"primary_{name}": value for name, value in place(primary).items()}
    pairs = {each["connection_id"]: {"primary_conn_id": each["connection_id"], **second} for each in namespaces}
    pairs["official"] = {"primary_conn_id": "official", **beside, **second}
    broken = {**inline("primary", primary), "primary_client_secret": CANARIES["broken"], "primary_transport": "none"}
    return [
        *namespaces,
        *(body(f"{kind}_pair", "servicebus_pair", extra=quick(extra)) for kind, extra in pairs.items()),
        *(body(f"{kind}_turned", "servicebus_pair", extra=turned(extra)) for kind, extra in pairs.items()),
        body("broken_pair", "servicebus_pair", extra={**broken, **second}),
        body("stored_pair", "servicebus_pair", extra=pair(primary, secondary)),
    ]


def official(primary: Namespace) -> str:
    """Return a connection of the official type as an environment variable has it.

    In Airflow's database its key would be in clear: it is in ``schema``, which Airflow does not encrypt and repeats in
    its audit log.
    """
    return json.dumps({"conn_type": "azure_service_bus", "schema": wrong(primary, "official")})


def pair(primary: Namespace, secondary: Namespace, **settings: Any) -> dict[str, Any]:
    """Return the extra of a pair that works, but for ``settings``."""
    extra = {**inline("primary", primary), **inline("secondary", secondary), "failover_interval": 1, **settings}
    return quick(extra)


def body(conn_id: str, conn_type: str, *, extra: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a connection in the shape of Airflow's REST API."""
    return {"connection_id": conn_id, "conn_type": conn_type, "extra": json.dumps(extra or {}), **fields}


def place(namespace: Namespace) -> dict[str, str]:
    """Return what a namespace is called and where it is managed."""
    return {"namespace": namespace.name, "administration": namespace.administration}


def inline(side: str, namespace: Namespace) -> dict[str, Any]:
    """Return the settings of one side of a pair, with its true key."""
    settings = {"connection_string": namespace.connection_string, **place(namespace)}
    return {f"{side}_{name}": value for name, value in settings.items()}


def quick(extra: dict[str, Any]) -> dict[str, Any]:
    """Return a pair whose entities are asked every second, so that a test need not wait."""
    return {**extra, "ping_primary_interval": 1, "backlog_queue_count": 2}


def turned(extra: dict[str, Any]) -> dict[str, Any]:
    """Return the pair the other way round, so that its backlog is where the credential is refused."""
    sides = {"primary": "secondary", "secondary": "primary"}
    named = {name.partition("_"): value for name, value in extra.items()}
    return quick({f"{sides[side]}_{rest}": value for (side, _, rest), value in named.items()})


def wrong(namespace: Namespace, name: str) -> str:
    """Return a connection string with a key that is refused, of characters that a URL quotes."""
    return namespace.connection_string.replace(KEY, f"{CANARIES[name]}/+=")


def signed(namespace: Namespace) -> str:
    """Return a connection string with a signature that is refused."""
    audience = quote(f"sb://{namespace.served.host}", safe="")
    signature = f"SharedAccessSignature sr={audience}&sig={CANARIES['signature']}%2bsig%3d&se={FAR}&skn=Root"
    at = f"Endpoint=sb://{namespace.served.host}:{namespace.amqp_port}"
    return f"{at};SharedAccessSignature={signature};UseDevelopmentEmulator=true;"


if {PRIMARY, SECONDARY} & set(CANARIES):
    raise AssertionError("a canary must be no word that is said for other reasons")
