"""Airflow listener that logs and counts failover and recovery events, whichever task emitted them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.listeners import hookimpl

from servicebus_pair.core.model import get_logger

if TYPE_CHECKING:
    from servicebus_pair.airflow_runtime.airflow_version import EmittedAssetEvent

_log = get_logger(__name__)
_PREFIX: Final = "servicebus_pair."
# Metric name and log level by the last part of the asset name.
_EVENTS: Final[Mapping[str, tuple[str, int]]] = {
    "failover": ("failovers", logging.WARNING),
    "recovery": ("recoveries", logging.INFO),
}


@hookimpl
def on_asset_event_emitted(asset_event: EmittedAssetEvent) -> None:
    """Log and count an event of the asset ``servicebus-pair://CONN_ID/failover`` or ``/recovery``."""
    conn_id, _, kind = asset_event.asset.name.removeprefix(_PREFIX).rpartition(".")
    if not asset_event.asset.name.startswith(_PREFIX) or kind not in _EVENTS:
        return
    from servicebus_pair.airflow_runtime.airflow_version import metric_tag, stats

    metric, level = _EVENTS[kind]
    extra: dict[str, Any] = asset_event.extra or {}
    _log.log(
        level,
        "%s conn_id=%r entity=%r by=%r since=%r reason=%r dag_id=%s run_id=%r",
        kind,
        conn_id,
        extra.get("entity"),
        extra.get("by"),
        extra.get("since"),
        extra.get("reason"),
        asset_event.source_dag_id,
        asset_event.source_run_id,
    )
    stats.incr(f"{_PREFIX}{metric}", tags={"conn_id": metric_tag(conn_id)})
