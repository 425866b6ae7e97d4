"""Links from a task to where more is known of its pair."""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
