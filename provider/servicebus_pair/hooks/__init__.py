"""Hooks: ``servicebus_pair`` for a pair of namespaces, ``servicebus_namespace`` for one namespace."""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
