"""``proof_dag``: verifies with Spark, after a recovery, that nothing was lost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG, BaseSensorOperator, task

from servicebus_pair.airflow_runtime.run_folder import RUN_FOLDER
from servicebus_pair.assets import drained_asset, pair_asset
from servicebus_pair.core.ledger import open_files
from servicebus_pair.core.model import load_json
from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.dags.spark_task import JOBS, SparkJobs
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID

__all__ = ["proof_dag"]

_POLL_SECONDS: Final = 5.0
# A writer that is silent for longer was killed, and closes nothing.
_SILENCE_SECONDS: Final = 60.0
_MAX_SUMMARY_BYTES: Final = 16 << 20

DOCS = """
### Proof of a recovery

Starts when a recovery has moved messages, and may be triggered by hand. It neither delays nor fails a recovery.

1. `requirements` fails, and says what to do, if Spark or its connection is missing.
2. `writers` waits until every process that writes the ledger has closed its file, because a run that is still being
   sent is not proven; at most for ten minutes, without a worker.
3. `reconcile` compares the ledger with the queues, in Spark; it fails if a message is lost or nothing is proven.
4. `report` returns the verdict and the totals. The Service Bus pairs page shows the report if
   `[servicebus_pair] reports` is its root.
"""


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
    wait_for_writers: timedelta = timedelta(minutes=10),
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
    :param wait_for_writers: how long to wait for processes that are still writing the ledger.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
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
            writers = _WritersSensor(
                task_id="writers",
                ledger=ledger,
                wait=wait_for_writers,
                mode="reschedule",
                poke_interval=_POLL_SECONDS,
            )
            # [START reconcile]
            reconcile = jobs.submit(
                "reconcile",
                JOBS / "reconcile.py",
                ["--ledger", ledger, "--entities", ",".join(entities), "--output", folder],
            )
            # [END reconcile]
            requirements >> writers >> reconcile >> summary
    return dag


class _WritersSensor(BaseSensorOperator):
    """Waits until nobody writes the ledger, or until a time after the run began.

    :param ledger: folder of the ledger; one in an object store has complete files only.
    :param wait: that time.
    """

    def __init__(self, *, ledger: str, wait: timedelta, **options: Any) -> None:
        super().__init__(**options)
        self.ledger = ledger
        self.wait = wait

    def poke(self, context: Mapping[str, Any]) -> bool:
        """Return whether the proof can begin."""
        now = time.time()
        if "://" in self.ledger or now > context["dag_run"].run_after.timestamp() + self.wait.total_seconds():
            return True
        return not any(open_files(self.ledger, now=now, silence=_SILENCE_SECONDS))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return verdict and totals of a reconcile job; ``report`` says that its page is next to them."""
    summary = load_json(folder / "summary.json", limit=_MAX_SUMMARY_BYTES)
    totals = summary["totals"]
    return {
        "verdict": summary["judgement"],
        "reasons": summary["reasons"],
        "delivered": totals["delivered"],
        "lost": totals["lost"],
        "duplicates": totals["duplicates"],
        "report": True,
    }
