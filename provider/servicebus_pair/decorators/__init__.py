"""Task decorators, one module each: ``servicebus_send``."""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
