"""The ledger: records written by senders and syphons, and the rules by which reports evaluate them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.ledger.incidents import INCIDENT_GAP_SECONDS, Incident, LedgerSlice, find_incidents
    from servicebus_pair.core.ledger.manifest import EntityManifest, PublishManifest
    from servicebus_pair.core.ledger.reader import KINDS, ROUTES, check_version
    from servicebus_pair.core.ledger.reconcile import (
        Found,
        History,
        Location,
        Outcome,
        Sent,
        Syphoned,
        Totals,
        Verdict,
        classify,
    )
    from servicebus_pair.core.ledger.session_order_check import Arrival, check_order
    from servicebus_pair.core.ledger.usage import LedgerCount, count_ledger, operations_for_record

__all__ = [
    "INCIDENT_GAP_SECONDS",
    "KINDS",
    "ROUTES",
    "Arrival",
    "EntityManifest",
    "Found",
    "History",
    "Incident",
    "LedgerCount",
    "LedgerSlice",
    "Location",
    "Outcome",
    "PublishManifest",
    "Sent",
    "Syphoned",
    "Totals",
    "Verdict",
    "check_order",
    "check_version",
    "classify",
    "count_ledger",
    "find_incidents",
    "operations_for_record",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "incidents": ["INCIDENT_GAP_SECONDS", "Incident", "LedgerSlice", "find_incidents"],
        "manifest": ["EntityManifest", "PublishManifest"],
        "reader": ["KINDS", "ROUTES", "check_version"],
        "reconcile": ["Found", "History", "Location", "Outcome", "Sent", "Syphoned", "Totals", "Verdict", "classify"],
        "session_order_check": ["Arrival", "check_order"],
        "usage": ["LedgerCount", "count_ledger", "operations_for_record"],
    },
)
