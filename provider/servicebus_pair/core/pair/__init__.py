"""The pair of namespaces, its settings, the drill, the connection check, and the bridge for synchronous code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.pair.connection_check import check_namespace, check_spool
    from servicebus_pair.core.pair.endpoint_settings import ENDPOINT_SETTINGS, find_secrets, read_endpoint
    from servicebus_pair.core.pair.settings import REFERENCE, SIDES, SettingsReference

__all__ = [
    "ENDPOINT_SETTINGS",
    "REFERENCE",
    "SIDES",
    "SettingsReference",
    "check_namespace",
    "check_spool",
    "find_secrets",
    "read_endpoint",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "connection_check": ["check_namespace", "check_spool"],
        "endpoint_settings": ["ENDPOINT_SETTINGS", "read_endpoint", "find_secrets"],
        "settings": ["REFERENCE", "SIDES", "SettingsReference"],
    },
)
