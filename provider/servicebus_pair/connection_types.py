"""The connection forms of the types ``servicebus_pair`` and ``servicebus_namespace``, as provider metadata.

They are data, so that Airflow imports no hook to show a form. A field's ``schema`` is JSON Schema, which the form
enforces; ``core.pair.settings`` validates again, because connections may come from elsewhere. Defaults and ranges of
the options are those of SPEC section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_AUTHENTICATIONS: Final = ("connection_string", "default", "client_secret", "managed_identity")
_HOST: Final = "contoso.servicebus.windows.net"
_EXAMPLE_STRING: Final = f"Endpoint=sb://{_HOST}/;SharedAccessKeyName=...;SharedAccessKey=..."
_RAISE_OR_FAIL_OVER: Final = ("raise", "fail_over")
# Fields of a pair that a connection of type servicebus_namespace does not have, or has as Airflow's standard fields.
_ONLY_OF_PAIRS: Final = ("conn_id", "host", "client_id", "client_secret")


def connection_types() -> list[dict[str, Any]]:
    """Return both connection types with their forms."""
    return [_pair(), _namespace()]


def _pair() -> dict[str, Any]:
    sides = {"primary": "Primary namespace", "secondary": "Secondary namespace"}
    fields: dict[str, Any] = {}
    for side, section in sides.items():
        for name, field in _namespace_fields().items():
            fields[f"{side}_{name}"] = _in_section(section, field)
    fields |= {name: _in_section("Options", field) for name, field in _option_fields().items()}
    return {
        "connection-type": "servicebus_pair",
        "hook-name": "Azure Service Bus pair",
        "hook-class-name": "servicebus_pair.hooks.servicebus_pair.ServiceBusPairHook",
        "conn-fields": fields,
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "login", "password", "schema"],
            "relabeling": {},
            "placeholders": {
                "primary_conn_id": "contoso",
                "secondary_conn_id": "contoso_dr",
                "primary_connection_string": _EXAMPLE_STRING,
                "secondary_connection_string": _EXAMPLE_STRING.replace("contoso", "contoso-dr"),
                "primary_host": _HOST,
                "secondary_host": _HOST.replace("contoso", "contoso-dr"),
            },
        },
    }


def _namespace() -> dict[str, Any]:
    return {
        "connection-type": "servicebus_namespace",
        "hook-name": "Azure Service Bus namespace",
        "hook-class-name": "servicebus_pair.hooks.servicebus_namespace.ServiceBusNamespaceHook",
        "conn-fields": {name: field for name, field in _namespace_fields().items() if name not in _ONLY_OF_PAIRS},
        "ui-field-behaviour": {
            "hidden-fields": ["port", "schema"],
            "relabeling": {"login": "Client id", "password": "Client secret"},
            "placeholders": {
                "host": _HOST,
                "connection_string": _EXAMPLE_STRING,
                "login": "id of the application or identity",
            },
        },
    }


def _namespace_fields() -> dict[str, Any]:
    return {
        "conn_id": _text(
            "Connection of the namespace",
            "Id of a connection of type servicebus_namespace or azure_service_bus; replaces the fields below.",
        ),
        "authentication": _choice("Authentication", "How the client authenticates.", _AUTHENTICATIONS),
        "connection_string": _secret(
            "Connection string", "With the rights Send and Listen, and Manage for provisioning."
        ),
        "host": _text("Host", "Fully qualified name; not needed with a connection string."),
        "tenant_id": _text("Tenant id", "Directory of the client secret, or of the workload identity."),
        "client_id": _text("Client id", "Of the application, or of a user-assigned managed identity."),
        "client_secret": _secret("Client secret", "Of the application."),
        "authority": _text("Authority", "Host of the token service, if not that of the public cloud."),
        "namespace": _text("Namespace", "Name of the namespace, if not the first label of the host."),
        "administration": _text("Administration", "host:port of the management endpoint, if not the host."),
        "transport": _choice("Transport", "TCP, or WebSocket if only port 443 is open.", ("amqp", "websocket")),
        "endpoint_address": _text(
            "Endpoint address", "Address to connect to instead of the host, such as sb://gateway.example:443."
        ),
        "ca_file": _text("CA file", "CA certificates to trust instead of the public ones."),
        "subscription_id": _text("Azure subscription", "For management by Azure Resource Manager."),
        "resource_group": _text("Resource group", "For management by Azure Resource Manager."),
        "management_endpoint": _text(
            "Management endpoint", "URL of the Resource Manager, if not that of the public cloud."
        ),
        "allow_other_hosts": _switch(
            "Other hosts", "Send tokens of the machine's identity to hosts that are not Azure's."
        ),
        "emulator": _switch("Emulator", "Plain TCP and HTTP, for an embedded namespace without a connection string."),
    }


def _option_fields() -> dict[str, Any]:
    return {
        "backlog_queue_count": _number("Backlog queues", "On the secondary, at least 1.", 10, 1, None, kind="integer"),
        "failover_interval": _number("Failover interval, s", "How long failures are tolerated.", 60, 0, 3600),
        "ping_primary_interval": _number("Ping interval, s", "Time between pings of an entity.", 60, 1, 1800),
        "ping_timeout": _number("Ping timeout, s", "Longest wait for one ping.", 120, 0.001, None),
        "probe": _choice(
            "Probe", "How to test a failed-over entity: send a message, or open a link.", ("ping", "link")
        ),
        "on_quota_exceeded": _choice("When an entity is full", "Raise, or count as a failure.", _RAISE_OR_FAIL_OVER),
        "on_entity_disabled": _choice(
            "When an entity is disabled", "Raise, or count as a failure.", _RAISE_OR_FAIL_OVER
        ),
        "ordering": _choice("Ordering", "Keep the order of each session, or no order.", ("none", "session")),
        "server_busy_delay": _number("Server busy delay, s", "Pause when the service throttles.", 10, 0, None),
        "attempt_timeout": _number("Attempt timeout, s", "Longest attempt on one namespace.", 10, 0.001, None),
        "health_refresh": _number("Health refresh, s", "Oldest shared health that a send acts on.", 5, 0.001, None),
        "max_idle_connections": _number(
            "Idle connections", "Kept to each namespace while no send uses them.", 100, 1, None, kind="integer"
        ),
        "enable_syphon": _switch("Syphon while open", "Drain the backlog in each process that opens the pair."),
        "syphon_retry_interval": _number(
            "Syphon backoff, s", "Initial backoff of a destination that fails.", 1, 1, 120
        ),
        "syphon_batch_size": _number(
            "Syphon batch", "Maximum messages per batch and queue.", 500, 1, 4500, kind="integer"
        ),
        "syphon_max_bytes": _number(
            "Syphon memory, bytes", "Maximum bytes of messages held.", 67_108_864, 1_048_576, None, kind="integer"
        ),
        "syphon_long_poll": _number("Syphon poll, s", "Longest wait for a message in the backlog.", 900, 1, None),
        "close_grace": _number("Close timeout, s", "Longest wait for sends in flight.", 5, 0, None),
        "spool": _text(
            "Spool", "Folder or URL for messages that neither namespace takes.", pattern="^(/|[a-z][a-z0-9+.-]*://)"
        ),
        "spool_max_bytes": _number(
            "Spool size, bytes", "The spool takes nothing beyond it.", 10 * 1024**3, 1, None, kind="integer"
        ),
        "spool_max_age": _number(
            "Spool age, s", "The spool takes nothing while a message is older.", 14 * 86_400, 1, None
        ),
        "spool_secret_key": _secret("Spool key", "Encrypts the spool: 32 bytes in URL-safe base64."),
    }


def _field(label: str, description: str, kind: str, **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


def _text(label: str, description: str, **schema: Any) -> dict[str, Any]:
    return _field(label, description, "string", **schema)


def _secret(label: str, description: str) -> dict[str, Any]:
    return _field(label, description, "string", format="password")


def _switch(label: str, description: str) -> dict[str, Any]:
    return _field(label, description, "boolean", default=False)


def _choice(label: str, description: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Return a field with the values ``allowed``, of which the first is the default."""
    return _field(label, description, "string", enum=[*allowed, None], default=allowed[0])


def _number(
    label: str, description: str, default: float, low: float, high: float | None, *, kind: str = "number"
) -> dict[str, Any]:
    maximum = {} if high is None else {"maximum": high}
    return _field(label, description, kind, default=default, minimum=low, **maximum)


def _in_section(section: str, field: Mapping[str, Any]) -> dict[str, Any]:
    return {**field, "schema": {**field["schema"], "section": section}}
