"""Triggers only wait: ``primary_health`` for a primary that answers, ``backlog`` for messages to drain."""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
