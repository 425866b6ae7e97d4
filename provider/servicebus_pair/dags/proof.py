"""``proof_dag``: verifies with Spark, after a recovery, that nothing was lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from servicebus_pair.assets import drained_asset, pair_asset
from servicebus_pair.dags.pair_dag import pair_dag
from servicebus_pair.dags.spark_task import JOBS, SparkJobs
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID

__all__ = ["proof_dag"]

DOCS = """
### Proof of a recovery

Starts when a recovery has moved messages, and may be triggered by hand. It neither delays nor fails a recovery.

1. `requirements` fails, and says what to do, if Spark or its connection is missing.
2. `reconcile` compares the ledger with the contents of the queues, in Spark, and fails if a message is lost.
3. `report` returns the totals. The Service Bus pairs page shows the report if `[servicebus_pair] reports` is its root.
"""

# Where the Service Bus pairs page looks for the report of a run, below `[servicebus_pair] reports`. Run ids contain
# characters that Spark does not allow in folder names.
RUN_FOLDER = "{{ dag.dag_id }}/{{ run_id | replace(':', '') | replace('+', '_') }}"


def proof_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    entities: Sequence[str],
    ledger: str,
    output: str,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    pair_reference: str | None = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that each recovery of the pair starts, and that proves its outcome with Spark.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_proof``.
    :param entities: where messages arrive: queues, and every subscription as ``topic/Subscriptions/name``.
    :param ledger: folder of the ledger that senders and recoveries write.
    :param output: folder for the reports, each in a folder of its DAG and run.
    :param spark_conn_id: the connection to Spark.
    :param spark_conf: further Spark settings; they take precedence.
    :param pair_reference: where Spark reads the pair's settings, ``env:NAME`` or ``file:PATH``; by default the
        environment variable of the connection.
    :param dag_options: any argument of ``DAG``.
    """
    jobs = SparkJobs(
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        spark_conn_id=spark_conn_id,
        conf=spark_conf or {},
        pair_reference=pair_reference,
    )
    folder = f"{output}/{RUN_FOLDER}/reconcile"
    with pair_dag(
        "proof",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        schedule=drained_asset(servicebus_pair_conn_id),
        doc_md=DOCS,
    ) as dag:
        requirements = jobs.requirements()

        # The inlet lets the Service Bus pairs page find the run and show its report.
        @task(inlets=[pair_asset(servicebus_pair_conn_id)])
        def report(folder: str) -> dict[str, Any]:
            """Return what Spark found."""
            return read_summary(Path(folder))

        summary = report(folder)
        requirements >> summary
        if jobs.installed():
            # [START reconcile]
            reconcile = jobs.submit(
                "reconcile",
                JOBS / "reconcile.py",
                ["--ledger", ledger, "--entities", ",".join(entities), "--output", folder],
            )
            # [END reconcile]
            requirements >> reconcile >> summary
    return dag


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the totals of a reconcile job; ``report`` says that its page is next to them."""
    totals = json.loads((folder / "summary.json").read_text())["totals"]
    return {
        "delivered": totals["delivered"],
        "lost": totals["lost"],
        "duplicates": totals["duplicates"],
        "report": True,
    }
