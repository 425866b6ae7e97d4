"""Provider metadata, which Airflow reads at startup; it imports no hook and no SDK."""

from __future__ import annotations

from typing import Any, Final

from servicebus_pair.connection_types import connection_types

_INTEGRATION: Final = "Azure Service Bus paired namespaces"
_GUIDES: Final = ("operators", "sensors", "receiving", "recovery", "operations")
_DOCUMENTATION_URL: Final = "https://learn.microsoft.com/azure/service-bus-messaging/service-bus-paired-namespaces"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, including the connection forms."""
    return {
        "package-name": "airflow-provider-servicebus-pair",
        "name": "Azure Service Bus Pair",
        "description": "Keeps sending to Azure Service Bus while a namespace is down, at least once.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": _DOCUMENTATION_URL,
                "how-to-guide": [f"/docs/{page}.md" for page in _GUIDES],
                "logo": "/integration-logos/servicebus-pair.svg",
                "tags": ["azure"],
            }
        ],
        "operators": _modules(
            *("operators.cleanup", "operators.cost", "operators.drill", "operators.entities"),
            *("operators.failover", "operators.provision"),
            *("operators.receive", "operators.record", "operators.send", "operators.syphon"),
        ),
        "sensors": _modules("sensors.backlog", "sensors.message", "sensors.servicebus_pair"),
        "hooks": _modules("hooks.servicebus_namespace", "hooks.servicebus_pair"),
        "triggers": _modules(
            *("triggers.backlog", "triggers.backlog_level", "triggers.message_available", "triggers.primary_health"),
            *("triggers.receive", "triggers.syphon_control"),
        ),
        "extra-links": [
            "servicebus_pair.links.servicebus_pair.AzurePortalLink",
            "servicebus_pair.links.servicebus_pair.PairPageLink",
        ],
        "notifications": ["servicebus_pair.notifications.recovery.RecoveryNotifier"],
        "queues": ["servicebus_pair.queues.servicebus_pair.ServiceBusPairQueueProvider"],
        "task-decorators": [
            {
                "name": "servicebus_receive",
                "class-name": "servicebus_pair.decorators.servicebus_receive.servicebus_receive_task",
            },
            {
                "name": "servicebus_send",
                "class-name": "servicebus_pair.decorators.servicebus_send.servicebus_send_task",
            },
        ],
        "asset-uris": [{"schemes": ["servicebus-pair"], "handler": None}],
        "connection-types": connection_types(),
        "config": _config(),
    }


def _config() -> dict[str, Any]:
    return {
        "servicebus_pair": {
            "description": "The Service Bus pairs page of the API server.",
            "options": {
                "page_interval": {
                    "description": "Seconds between two readings of a namespace while the page is watched, at least 1.",
                    "version_added": "0.1.0",
                    "type": "float",
                    "example": "10",
                    "default": "5",
                },
                "reports": {
                    "description": "Folder, or URL of an object store, below which the reconcile reports are.",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "s3://bucket/servicebus_pair/output",
                    "default": None,
                },
                "page_pairs": {
                    "description": "Connection ids of the pairs to query, with commas, or *; by default those of DAGs.",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "contoso_pair,orders_pair",
                    "default": None,
                },
                "files_root": {
                    "description": "Folder, or URL, below which files of messages must be.",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "/srv/messages",
                    "default": None,
                },
            },
        }
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": [f"servicebus_pair.{name}" for name in names]}]
