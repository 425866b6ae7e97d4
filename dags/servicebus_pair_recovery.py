"""Brings home what an outage left in the backlog, as soon as the primary answers again."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, AssetWatcher
from local_spark import package_folder, submit

from servicebus_pair.hooks.assets import backlog_asset, failover_asset
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger

CONN_ID = "contoso_pair"
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
RUN = "{{ run_id | replace(':', '') | replace('+', '_') }}"

DOCS = """
### Recovery of a pair of namespaces

Starts by an event: a task found a failover, or the watcher saw messages in the backlog, whoever left
them there. It may be triggered by hand at any time; with an empty backlog it does nothing.

1. `wait_for_primary` waits in the triggerer until the primary accepts pings again.
2. `drain` moves the messages home. It can be killed and repeated: a message leaves the backlog after
   the primary has confirmed it.
3. `reconcile` compares the ledger with what the queues hold, in Spark.
"""

# [START recovery_schedule]
# A task's own event comes when the task ends. The watcher sees the backlog of a job that is still running.
backlog = backlog_asset(
    CONN_ID,
    watchers=[AssetWatcher(name=f"{CONN_ID}_backlog", trigger=BacklogTrigger(conn_id=CONN_ID, interval=3.0))],
)

with DAG(
    "servicebus_pair_recovery",
    schedule=failover_asset(CONN_ID) | backlog,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=15)},
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [END recovery_schedule]
    # [START wait_for_primary]
    wait = ServiceBusPrimaryHealthSensor(
        task_id="wait_for_primary", conn_id=CONN_ID, deferrable=True, poke_interval=3, timeout=6 * 3600
    )
    # [END wait_for_primary]

    # [START drain]
    drain = ServiceBusPairSyphonOperator(
        task_id="drain", conn_id=CONN_ID, deferrable=True, ledger=LEDGER, execution_timeout=timedelta(hours=1)
    )
    # [END drain]

    # [START reconcile]
    reconcile = submit(
        "reconcile",
        package_folder("servicebus_pair") / "spark" / "jobs" / "reconcile.py",
        [
            *("--pair", f"env:AIRFLOW_CONN_{CONN_ID.upper()}"),
            *("--ledger", LEDGER),
            *("--entities", "flights,briefings,delays/Subscriptions/all"),
            *("--output", f"{HOME}/output/{RUN}/reconcile"),
        ],
    )
    # [END reconcile]

    wait >> drain >> reconcile
