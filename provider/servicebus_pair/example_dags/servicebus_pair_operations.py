"""Everything that looks after one pair of namespaces, in Airflow DAGs made by one call each.

===========================  ================================================  ==========================
environment variable         value                                             default
===========================  ================================================  ==========================
``SERVICEBUS_PAIR_CONN_ID``  id of the connection                              ``contoso_pair``
``SERVICEBUS_PAIR_HOME``     folder of the ledger and the reports, which all   the worker's folder
                             workers share
===========================  ================================================  ==========================
"""

from __future__ import annotations

import os
from pathlib import Path

from servicebus_pair.dags import (
    at_scale_dag,
    by_hand_dag,
    cleanup_dag,
    cost_dag,
    drill_dag,
    proof_dag,
    provision_dag,
    recovery_dag,
    redrive_dag,
)

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
OUTPUT = str(HOME / "output")
# Where messages arrive: queues, and every subscription of a topic.
ENTITIES = ["flights", "briefings", "statistics", "delays/Subscriptions/all"]

provision_dag(dag_id="servicebus_pair_provision", servicebus_pair_conn_id=CONN_ID)
by_hand_dag(dag_id="servicebus_pair_by_hand", servicebus_pair_conn_id=CONN_ID)
cleanup_dag(dag_id="servicebus_pair_cleanup", servicebus_pair_conn_id=CONN_ID)

# [START recovery]
# Starts on a failover, on a backlog, and once an hour in case both were missed.
recovery_dag(
    dag_id="servicebus_pair_recovery",
    servicebus_pair_conn_id=CONN_ID,
    schedule="@hourly",
    ledger=LEDGER,
)
# [END recovery]

redrive_dag(dag_id="servicebus_pair_redrive", servicebus_pair_conn_id=CONN_ID, ledger=LEDGER)

# [START proof]
# Each recovery starts it; it needs Spark, and says so where that is missing.
proof_dag(
    dag_id="servicebus_pair_proof",
    servicebus_pair_conn_id=CONN_ID,
    entities=ENTITIES,
    ledger=LEDGER,
    output=OUTPUT,
)
# [END proof]

at_scale_dag(
    dag_id="servicebus_pair_at_scale",
    servicebus_pair_conn_id=CONN_ID,
    entities=ENTITIES,
    ledger=LEDGER,
    output=OUTPUT,
)

drill_dag(
    dag_id="servicebus_pair_drill",
    servicebus_pair_conn_id=CONN_ID,
    entities=["flights"],
    schedule="@monthly",
)

cost_dag(
    dag_id="servicebus_pair_cost",
    servicebus_pair_conn_id=CONN_ID,
    ledger=LEDGER if Path(LEDGER).is_dir() else None,
    prices="{{ var.value.get('servicebus_pair_prices', '') }}",
)
