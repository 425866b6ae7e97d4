"""Core of paired namespaces, independent of Airflow and Spark.

This is its public interface, together with :mod:`~servicebus_pair.core.errors`, :mod:`~servicebus_pair.core.events` and
:mod:`~servicebus_pair.core.pricing`; everything below is private. Names are imported on first use, so that parsing a
DAG file does not load the Azure SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.ledger.writer import Ledger
    from servicebus_pair.core.model.health_state import EntityHealth, HealthState
    from servicebus_pair.core.model.interfaces import BlockingHealthStore, HealthStore, InMemoryHealthStore
    from servicebus_pair.core.model.options import ArmCoordinates, Endpoint, PairOptions, Secret
    from servicebus_pair.core.model.pricing import Operations, PriceList, bill
    from servicebus_pair.core.model.results import (
        CleanupReport,
        DrainReport,
        Progress,
        ProvisionReport,
        ScheduleResult,
        SendResult,
    )
    from servicebus_pair.core.pair.drill import DrillReport, drill_id
    from servicebus_pair.core.pair.namespace_pair import NamespacePair
    from servicebus_pair.core.pair.settings import PairSettings, read_pair_settings
    from servicebus_pair.core.pair.sync_bridge import SyncBridge
    from servicebus_pair.core.protocol.amqp_message import is_ping
    from servicebus_pair.core.receive.receiver import InboundMessage, PairReceiver
    from servicebus_pair.core.sdk.credentials import ClientSecret, DefaultIdentity, ManagedIdentity
    from servicebus_pair.core.send.sender import PairSender
    from servicebus_pair.core.syphon.backlog_entry import TimeToLive
    from servicebus_pair.core.syphon.drain import Syphon
    from servicebus_pair.core.syphon.survey import BacklogSurvey

__all__ = [
    "ArmCoordinates",
    "BacklogSurvey",
    "BlockingHealthStore",
    "CleanupReport",
    "ClientSecret",
    "DefaultIdentity",
    "DrainReport",
    "DrillReport",
    "Endpoint",
    "EntityHealth",
    "HealthState",
    "HealthStore",
    "InMemoryHealthStore",
    "InboundMessage",
    "Ledger",
    "ManagedIdentity",
    "NamespacePair",
    "Operations",
    "PairOptions",
    "PairReceiver",
    "PairSender",
    "PairSettings",
    "PriceList",
    "Progress",
    "ProvisionReport",
    "ScheduleResult",
    "Secret",
    "SendResult",
    "SyncBridge",
    "Syphon",
    "TimeToLive",
    "bill",
    "drill_id",
    "is_ping",
    "read_pair_settings",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ledger.writer": ["Ledger"],
        "model.health_state": ["EntityHealth", "HealthState"],
        "model.interfaces": ["BlockingHealthStore", "HealthStore", "InMemoryHealthStore"],
        "model.options": ["ArmCoordinates", "Endpoint", "PairOptions", "Secret"],
        "model.pricing": ["Operations", "PriceList", "bill"],
        "model.results": [
            "CleanupReport",
            "DrainReport",
            "Progress",
            "ProvisionReport",
            "ScheduleResult",
            "SendResult",
        ],
        "pair.drill": ["DrillReport", "drill_id"],
        "pair.namespace_pair": ["NamespacePair"],
        "pair.settings": ["PairSettings", "read_pair_settings"],
        "pair.sync_bridge": ["SyncBridge"],
        "protocol.amqp_message": ["is_ping"],
        "receive.receiver": ["InboundMessage", "PairReceiver"],
        "sdk.credentials": ["ClientSecret", "DefaultIdentity", "ManagedIdentity"],
        "send.sender": ["PairSender"],
        "syphon.backlog_entry": ["TimeToLive"],
        "syphon.drain": ["Syphon"],
        "syphon.survey": ["BacklogSurvey"],
    },
)
