"""Airflow's ``DagBag``, which moved in 3.2."""

from __future__ import annotations

try:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag, sync_bag_to_db  # type: ignore[no-redef]

__all__ = ["DagBag", "sync_bag_to_db"]
