"""``at_scale_dag``: drains a backlog that is too large for one worker, in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from servicebus_pair.airflow_runtime.run_folder import RUN_FOLDER
from servicebus_pair.assets import pair_asset
from servicebus_pair.core.model import load_json
from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.dags.proof import read_summary
from servicebus_pair.dags.spark_task import JOBS, SparkJobs
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID

__all__ = ["at_scale_dag"]

DOCS = """
### Drain a backlog that is too large for one worker

1. `requirements` fails, and says what to do, if Spark or its connection is missing.
2. `profile` peeks into the backlog and reports what it holds.
3. `drain` moves the messages to the primary, with one Spark task for each slice of the backlog queues. It refuses to
   start while no destination answers on the primary, and fails if messages are left; a retry continues with them.
4. `reconcile` compares the ledger with the contents of the queues, and fails if a message is lost.
5. `cost` reports the cost of the counted operations, compared with quiet days.
6. `report` returns a summary, which the Service Bus pairs page shows.

The recovery starts automatically and does the same in Airflow workers; this DAG is triggered by hand.
"""


def at_scale_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    entities: Sequence[str],
    ledger: str,
    output: str,
    rate: int = 2000,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    pair_reference: str | None = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that is triggered by hand and drains a pair's backlog with Spark.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_at_scale``.
    :param entities: where messages arrive: queues, and every subscription as ``topic/Subscriptions/name``.
    :param ledger: folder of the ledger that senders write; the drain adds its records.
    :param output: folder for the reports, each in a folder of its DAG and run.
    :param rate: what the form suggests as limit, in messages per second for all Spark tasks together.
    :param spark_conn_id: the connection to Spark.
    :param spark_conf: further Spark settings; they take precedence.
    :param pair_reference: where Spark reads the pair's settings, ``env:NAME`` or ``file:PATH``; by default the
        environment variable of the connection.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    jobs = SparkJobs(
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        spark_conn_id=spark_conn_id,
        conf=spark_conf or {},
        pair_reference=pair_reference,
    )
    folder = f"{output}/{RUN_FOLDER}"
    drained = f"{folder}/drain.json"
    with pair_dag(
        "at_scale",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        params={
            "rate": Param(rate, type="integer", minimum=1, title="Messages per second, for all tasks together"),
        },
        doc_md=DOCS,
    ) as dag:
        requirements = jobs.requirements()

        # The inlet lets the Service Bus pairs page find the run and show its report.
        @task(inlets=[pair_asset(servicebus_pair_conn_id)])
        def report(drained: str, folder: str) -> dict[str, Any]:
            """Summarise what Spark moved and found."""
            moved = load_json(drained, limit=16 << 20)
            shown = {name: moved[name] for name in ("moved", "dead_lettered", "duplicates_possible", "seconds")}
            return {**shown, **read_summary(Path(folder))}

        summary = report(drained, f"{folder}/reconcile")
        requirements >> summary
        if jobs.installed():
            profile = jobs.submit("profile", JOBS / "profile_backlog.py", ["--output", f"{folder}/profile"])
            # [START spark_drain]
            drain = jobs.submit(
                "drain",
                JOBS / "drain.py",
                ["--ledger", ledger, "--run", "{{ run_id }}", "--report", drained, "--rate", "{{ params.rate }}"],
            )
            # [END spark_drain]
            reconcile = jobs.submit(
                "reconcile",
                JOBS / "reconcile.py",
                ["--ledger", ledger, "--entities", ",".join(entities), "--output", f"{folder}/reconcile"],
            )
            cost = jobs.submit(
                "cost", JOBS / "cost.py", ["--ledger", ledger, "--metered", drained, "--output", f"{folder}/cost"]
            )
            requirements >> profile >> drain >> [reconcile, cost]
            reconcile >> summary
    return dag
