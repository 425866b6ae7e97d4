"""Extra links of a task: to the Service Bus pairs page, and to the Azure portal."""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
