"""The operational Airflow DAGs of one pair, as in the examples, with the schedules and deadlines of a test."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import (  # type: ignore[attr-defined]  # its stubs omit deadlines
    AsyncCallback,
    DeadlineAlert,
    DeadlineReference,
)

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
from tests.system.platform.file_notifier import FileNotifier

CONN_ID = "contoso_pair"
HOME = Path(os.environ["SERVICEBUS_PAIR_HOME"])
LEDGER, OUTPUT = str(HOME / "ledger"), str(HOME / "output")
ENTITIES = ["flights", "briefings", "statistics", "delays/Subscriptions/all"]
NOTICES = os.environ["NOTICES"]
LATE = "{{ dag_run.dag_id }}, run {{ dag_run.dag_run_id }}, has not ended by {{ deadline.deadline_time }}"

recovery_dag(
    dag_id="servicebus_pair_recovery",
    servicebus_pair_conn_id=CONN_ID,
    schedule="* * * * *",
    ledger=LEDGER,
    poll_interval=timedelta(seconds=3),
    notifier=FileNotifier(path=NOTICES, text="{{ notice }}"),
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=12),
        callback=AsyncCallback(FileNotifier, kwargs={"path": NOTICES, "text": LATE}),
    ),
)
proof_dag(
    dag_id="servicebus_pair_proof",
    servicebus_pair_conn_id=CONN_ID,
    entities=ENTITIES,
    ledger=LEDGER,
    output=OUTPUT,
)
at_scale_dag(
    dag_id="servicebus_pair_at_scale",
    servicebus_pair_conn_id=CONN_ID,
    entities=ENTITIES,
    ledger=LEDGER,
    output=OUTPUT,
)
provision_dag(dag_id="servicebus_pair_provision", servicebus_pair_conn_id=CONN_ID)
cleanup_dag(dag_id="servicebus_pair_cleanup", servicebus_pair_conn_id=CONN_ID)
by_hand_dag(dag_id="servicebus_pair_by_hand", servicebus_pair_conn_id=CONN_ID)
# A ledger of its own: what it moves goes to a queue that the proof does not examine.
redrive_dag(dag_id="servicebus_pair_redrive", servicebus_pair_conn_id=CONN_ID, ledger=str(HOME / "redriven"))
cost_dag(dag_id="servicebus_pair_cost", servicebus_pair_conn_id=CONN_ID)
# A drill that was due before the DAG is unpaused, and none on the day of the test.
drill_dag(
    dag_id="servicebus_pair_drill",
    servicebus_pair_conn_id=CONN_ID,
    entities=["flights"],
    schedule=f"0 0 1 {(datetime.now(UTC).month + 5) % 12 + 1} *",
)
