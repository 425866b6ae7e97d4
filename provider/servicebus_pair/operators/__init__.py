"""Operators, one module each.

``provision``, ``cleanup``, ``send``, ``syphon``, ``record``, ``failover`` (and failback), ``drill``, ``cost``.
"""

from __future__ import annotations

from servicebus_pair.airflow_version import require_airflow

require_airflow()
