"""Spark: a data source that writes through the failover-aware senders and reads by peek, and the proof of it all.

Names are imported when first used, so that a driver program pays only for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from servicebus_pair.spark.places import Place
    from servicebus_pair.spark.publishing import publish
    from servicebus_pair.spark.reconciliation import Reconciliation
    from servicebus_pair.spark.reconciling import reconcile
    from servicebus_pair.spark.redaction import SparkTaskError
    from servicebus_pair.spark.references import PairReference
    from servicebus_pair.spark.registering import register
    from servicebus_pair.spark.source import ServiceBusDataSource

__all__ = [
    "PairReference",
    "Place",
    "Reconciliation",
    "ServiceBusDataSource",
    "SparkTaskError",
    "publish",
    "reconcile",
    "register",
]

_HOMES: Final = {
    "PairReference": "references",
    "Place": "places",
    "Reconciliation": "reconciliation",
    "ServiceBusDataSource": "source",
    "SparkTaskError": "redaction",
    "publish": "publishing",
    "reconcile": "reconciling",
    "register": "registering",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
