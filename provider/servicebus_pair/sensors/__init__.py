"""Sensors: ``servicebus_pair``."""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
