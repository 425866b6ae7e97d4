"""Drains a backlog that is too large for one worker, in Spark: profile, drain, reconcile, cost report."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task
from local_spark import package_folder, pair_reference, submit

from servicebus_pair.assets import pair_asset

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
ENTITIES = os.environ.get("SERVICEBUS_PAIR_PLACES", "flights,briefings,statistics,delays/Subscriptions/all")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
# Where the Service Bus pairs page looks for the report of a run, if its setting `reports` is HOME/output.
# Run ids contain characters that Spark does not allow in folder names.
OUTPUT = f"{HOME}/output/{{{{ dag.dag_id }}}}/{{{{ run_id | replace(':', '') | replace('+', '_') }}}}"
REPORT = f"{OUTPUT}/drain.json"
JOBS = package_folder("servicebus_pair") / "spark" / "jobs"
PAIR = ("--pair", pair_reference(CONN_ID))
RATE = ("--rate", "{{ params.rate }}")

DOCS = """
### Drain a backlog that is too large for one worker

1. `profile` peeks into the backlog and reports what it holds.
2. `drain` moves the messages to the primary, with one Spark task for each slice of the backlog queues. It refuses to
   start while no destination answers on the primary, and fails if messages are left; a retry continues with them.
3. `reconcile` compares the ledger with the contents of the queues, and fails if a message is lost.
4. `cost` reports the cost of the counted operations, compared with quiet days.
5. `report` returns a summary, which the Service Bus pairs page shows.

Reports and tables are in the folder `output` below `SERVICEBUS_PAIR_HOME`. The recovery DAG starts automatically and
does the same in Airflow workers; this DAG is triggered by hand.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_HOME` | environment | folder of the ledger and the output |
| `SERVICEBUS_PAIR_PLACES` | environment | queues and subscriptions to reconcile |
| `SERVICEBUS_PAIR_REFERENCE` | environment | where Spark reads the settings; default: the connection |
| `SERVICEBUS_PAIR_SPARK_CONN_ID` | environment | id of the Spark connection; default `spark_default` |
| `SERVICEBUS_PAIR_SPARK_CONF` | environment | additional Spark settings, as JSON |
| trigger form | | messages per second |
"""

with DAG(
    "servicebus_pair_at_scale",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={"rate": Param(2000, type="integer", minimum=1, title="Messages per second, for all tasks together")},
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    profile = submit("profile", JOBS / "profile_backlog.py", [*PAIR, *("--output", f"{OUTPUT}/profile")])

    # [START drain]
    drain = submit(
        "drain",
        JOBS / "drain.py",
        [*PAIR, *("--ledger", LEDGER), *("--run", "{{ run_id }}"), *("--report", REPORT), *RATE],
    )
    # [END drain]

    reconcile = submit(
        "reconcile",
        JOBS / "reconcile.py",
        [*PAIR, *("--ledger", LEDGER), *("--entities", ENTITIES), *("--output", f"{OUTPUT}/reconcile")],
    )
    cost = submit(
        "cost",
        JOBS / "cost.py",
        [*PAIR, *("--ledger", LEDGER), *("--metered", REPORT), *("--output", f"{OUTPUT}/cost")],
    )

    # The inlet lets the Service Bus pairs page find the run and show its report.
    @task(inlets=[pair_asset(CONN_ID)])
    def report(drained: str, folder: str) -> dict[str, Any]:
        """Summarise what Spark moved and found."""
        drain_report = json.loads(Path(drained).read_text())
        summary = Path(folder) / "reconcile" / "summary.json"
        return {
            "moved": drain_report["moved"],
            "dead_lettered": drain_report["dead_lettered"],
            "duplicates_possible": drain_report["duplicates_possible"],
            "seconds": drain_report["seconds"],
            "lost": json.loads(summary.read_text())["totals"]["lost"],
            "report": True,
        }

    profile >> drain >> [reconcile, cost]
    reconcile >> report(drained=REPORT, folder=OUTPUT)
