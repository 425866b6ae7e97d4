"""Airflow's only doors to the core: the connection, the shared state and the assets."""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
