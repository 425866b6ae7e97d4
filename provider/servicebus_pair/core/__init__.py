"""The core of paired namespaces: it knows neither Airflow nor Spark.

Names are imported when first used, so that parsing a DAG file does not load the Azure SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from servicebus_pair.core.blocking import Bridge
    from servicebus_pair.core.configuration import PairSettings, read_pair
    from servicebus_pair.core.costs import Operations, bill
    from servicebus_pair.core.drill import DrillReport, drill_of, is_ping
    from servicebus_pair.core.health import EntityHealth, State
    from servicebus_pair.core.identity import ClientSecret, DefaultIdentity, ManagedIdentity
    from servicebus_pair.core.ledger import Ledger
    from servicebus_pair.core.options import ArmCoordinates, Endpoint, PairOptions, Secret
    from servicebus_pair.core.pair import NamespacePair
    from servicebus_pair.core.parcels import TimeToLive
    from servicebus_pair.core.progress import Progress
    from servicebus_pair.core.results import DrainReport, ProvisionReport, ScheduleResult, SendResult
    from servicebus_pair.core.survey import BacklogSurvey

__all__ = [
    "ArmCoordinates",
    "BacklogSurvey",
    "Bridge",
    "ClientSecret",
    "DefaultIdentity",
    "DrainReport",
    "DrillReport",
    "Endpoint",
    "EntityHealth",
    "Ledger",
    "ManagedIdentity",
    "NamespacePair",
    "Operations",
    "PairOptions",
    "PairSettings",
    "Progress",
    "ProvisionReport",
    "ScheduleResult",
    "Secret",
    "SendResult",
    "State",
    "TimeToLive",
    "bill",
    "drill_of",
    "is_ping",
    "read_pair",
]

_HOMES: Final = {
    "BacklogSurvey": "survey",
    "Progress": "progress",
    "TimeToLive": "parcels",
    "ArmCoordinates": "options",
    "Bridge": "blocking",
    "ClientSecret": "identity",
    "DefaultIdentity": "identity",
    "DrainReport": "results",
    "DrillReport": "drill",
    "Endpoint": "options",
    "EntityHealth": "health",
    "Ledger": "ledger",
    "ManagedIdentity": "identity",
    "NamespacePair": "pair",
    "Operations": "costs",
    "PairOptions": "options",
    "PairSettings": "configuration",
    "ProvisionReport": "results",
    "ScheduleResult": "results",
    "Secret": "options",
    "SendResult": "results",
    "State": "health",
    "bill": "costs",
    "drill_of": "drill",
    "is_ping": "drill",
    "read_pair": "configuration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
