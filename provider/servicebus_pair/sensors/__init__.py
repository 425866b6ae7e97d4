"""Sensors: ``servicebus_pair`` for the primary, ``backlog`` for the backlog queues."""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
