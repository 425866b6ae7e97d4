"""The Airflow DAGs that look after the demo's pair: recovery, its proof, and the drain in Spark."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from servicebus_pair.dags import at_scale_dag, proof_dag, recovery_dag

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
WITH_SPARK: dict[str, Any] = {
    "servicebus_pair_conn_id": CONN_ID,
    "entities": ["flights", "briefings", "statistics", "delays/Subscriptions/all"],
    "ledger": str(HOME / "ledger"),
    "output": str(HOME / "output"),
    "spark_conn_id": os.environ.get("SERVICEBUS_PAIR_SPARK_CONN_ID", "spark_default"),
    "spark_conf": json.loads(os.environ.get("SERVICEBUS_PAIR_SPARK_CONF", "{}")),
    "pair_reference": os.environ.get("SERVICEBUS_PAIR_REFERENCE"),
}

recovery_dag(
    dag_id="servicebus_pair_recovery",
    servicebus_pair_conn_id=CONN_ID,
    ledger=str(HOME / "ledger"),
    poll_interval=timedelta(seconds=3),
)
proof_dag(dag_id="servicebus_pair_proof", **WITH_SPARK)
at_scale_dag(dag_id="servicebus_pair_at_scale", **WITH_SPARK)
