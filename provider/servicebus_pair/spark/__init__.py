"""Spark data source for Azure Service Bus (failover-aware writes, reads by peek), and the jobs built on it.

Exports are lazy, so that a driver program imports only the modules it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity
    from servicebus_pair.spark.analysis.reconciling import reconcile
    from servicebus_pair.spark.base.credential_reference import PairReference
    from servicebus_pair.spark.base.redaction import SparkTaskError
    from servicebus_pair.spark.datasource.registration import register
    from servicebus_pair.spark.datasource.source import ServiceBusDataSource
    from servicebus_pair.spark.report.reconcile_result import Reconciliation
    from servicebus_pair.spark.transfer.publishing import publish, with_message_ids

__all__ = [
    "PairReference",
    "ReceivingEntity",
    "Reconciliation",
    "ServiceBusDataSource",
    "SparkTaskError",
    "publish",
    "reconcile",
    "register",
    "with_message_ids",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "analysis.receiving_entities": ["ReceivingEntity"],
        "analysis.reconciling": ["reconcile"],
        "base.credential_reference": ["PairReference"],
        "base.redaction": ["SparkTaskError"],
        "datasource.registration": ["register"],
        "datasource.source": ["ServiceBusDataSource"],
        "transfer.publishing": ["publish", "with_message_ids"],
        "report.reconcile_result": ["Reconciliation"],
    },
)
