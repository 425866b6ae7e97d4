"""Operators, one module for each purpose.

``provision``, ``cleanup``, ``send``, ``syphon``, ``record``, ``failover`` (and failback), ``drill``, ``cost``.
"""

from __future__ import annotations

from servicebus_pair.airflow_runtime.airflow_version import require_airflow

require_airflow()
