"""What Airflow reads to know this provider; it imports nothing of ours, and no hook is needed."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["get_provider_info"]

_INTEGRATION: Final = "Azure Service Bus paired namespaces"
_DOCUMENT: Final = "https://learn.microsoft.com/azure/service-bus-messaging/service-bus-paired-namespaces"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, the connection type and the fields of its form."""
    return {
        "package-name": "airflow-provider-servicebus-pair",
        "name": "Azure Service Bus Pair",
        "description": "Sends to Azure Service Bus that survive the outage of a namespace, at least once.",
        "integrations": [{"integration-name": _INTEGRATION, "external-doc-url": _DOCUMENT, "tags": ["azure"]}],
        "operators": _modules(
            *("operators.cleanup", "operators.cost", "operators.drill", "operators.failover", "operators.provision"),
            *("operators.record", "operators.send", "operators.syphon"),
        ),
        "sensors": _modules("sensors.backlog", "sensors.servicebus_pair"),
        "hooks": _modules("hooks.servicebus_pair"),
        "triggers": _modules("triggers.backlog", "triggers.backlog_level", "triggers.primary_health"),
        "extra-links": [
            "servicebus_pair.links.servicebus_pair.AzurePortalLink",
            "servicebus_pair.links.servicebus_pair.PairPageLink",
        ],
        "task-decorators": [
            {
                "name": "servicebus_send",
                "class-name": "servicebus_pair.decorators.servicebus_send.servicebus_send_task",
            }
        ],
        "asset-uris": [{"schemes": ["servicebus-pair"], "handler": None}],
        "connection-types": [
            {
                "connection-type": "servicebus_pair",
                "hook-name": "Azure Service Bus pair",
                "hook-class-name": "servicebus_pair.hooks.servicebus_pair.ServiceBusPairHook",
                "conn-fields": {**_endpoint("primary"), **_endpoint("secondary"), **_options()},
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "login", "password", "schema"],
                    "relabeling": {},
                    "placeholders": {},
                },
            }
        ],
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": [f"servicebus_pair.{name}" for name in names]}]


def _endpoint(side: str) -> dict[str, Any]:
    title = side.capitalize()
    return {
        f"{side}_connection_string": {
            "label": f"{title} connection string",
            "description": f"Of the {side} namespace, with the rights Send and Listen, and Manage for provisioning.",
            "schema": {"type": ["string", "null"], "format": "password"},
        },
        f"{side}_namespace": {
            "label": f"{title} namespace",
            "description": "Its name, when that is not the first label of the host.",
            "schema": {"type": ["string", "null"]},
        },
        f"{side}_administration": {
            "label": f"{title} administration",
            "description": "host:port of its administration endpoint, when that is not the host.",
            "schema": {"type": ["string", "null"]},
        },
    }


def _options() -> dict[str, Any]:
    """Defaults and ranges of SPEC section 2; ``core.options`` checks them again."""
    return {
        "backlog_queue_count": _number("Backlog queues", "On the secondary, at least 1.", 10, 1, None, kind="integer"),
        "failover_interval": _number("Failover interval, s", "How long failures are accepted.", 60, 0, 3600),
        "ping_primary_interval": _number("Ping interval, s", "Pause between pings of an entity.", 60, 1, 1800),
        "ping_timeout": _number("Ping timeout, s", "Longest wait for one ping.", 120, 0.001, None),
        "syphon_retry_interval": _number("Syphon rest, s", "Rest of a destination that refused.", 1, 1, 120),
        "syphon_batch_size": _number("Syphon batch", "Most messages in hand per queue.", 100, 1, 4500, kind="integer"),
        "server_busy_delay": _number("Server busy delay, s", "Pause after the service throttled.", 10, 0, None),
    }


def _number(
    label: str, description: str, default: float, low: float, high: float | None, *, kind: str = "number"
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": [kind, "null"], "default": default, "minimum": low}
    if high is not None:
        schema["maximum"] = high
    return {"label": label, "description": description, "schema": schema}
