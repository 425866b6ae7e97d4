"""The page and JSON API that the plugin mounts on Airflow's API server."""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
