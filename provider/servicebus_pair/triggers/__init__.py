"""Triggers: wait for the primary, for the backlog, or while the syphon is paused; they never move messages."""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
