"""Message queues for ``MessageQueueTrigger`` of the provider common.messaging."""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
