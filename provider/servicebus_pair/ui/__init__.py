"""A page and an API on Airflow's API server, served by the plugin."""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
