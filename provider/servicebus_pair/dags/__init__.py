"""Factories of the DAGs that look after a pair of namespaces: one call makes one DAG, so three pairs are three lines.

Each takes ``servicebus_pair_conn_id``, ``dag_id`` (by default the connection's id and the purpose, such as
``contoso_pair_recovery``), and any argument of ``DAG``, such as ``tags``, ``default_args`` or ``deadline``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports
from servicebus_pair.airflow_runtime.airflow_version import require_airflow

if TYPE_CHECKING:
    from servicebus_pair.dags.at_scale import at_scale_dag
    from servicebus_pair.dags.by_hand import by_hand_dag
    from servicebus_pair.dags.cleanup import cleanup_dag
    from servicebus_pair.dags.cost import cost_dag
    from servicebus_pair.dags.drill import drill_dag
    from servicebus_pair.dags.proof import proof_dag
    from servicebus_pair.dags.provision import provision_dag
    from servicebus_pair.dags.recovery import recovery_dag
    from servicebus_pair.dags.redrive import redrive_dag

__all__ = [
    "at_scale_dag",
    "by_hand_dag",
    "cleanup_dag",
    "cost_dag",
    "drill_dag",
    "proof_dag",
    "provision_dag",
    "recovery_dag",
    "redrive_dag",
]

require_airflow()

__getattr__ = lazy_exports(__name__, {name.removesuffix("_dag"): [name] for name in __all__})
