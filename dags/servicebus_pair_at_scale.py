"""Brings home, in Spark, a backlog that one worker cannot hold: looks, drains, reconciles, bills."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task
from local_spark import package_folder, pair_reference, submit

from servicebus_pair.hooks.assets import pair_asset

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
PLACES = os.environ.get("SERVICEBUS_PAIR_PLACES", "flights,briefings,statistics,delays/Subscriptions/all")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
# Characters of a run id that a folder of Spark's must not have.
OUTPUT = f"{HOME}/output/{{{{ run_id | replace(':', '') | replace('+', '_') }}}}"
REPORT = f"{OUTPUT}/drain.json"
JOBS = package_folder("servicebus_pair") / "spark" / "jobs"
PAIR = ("--pair", pair_reference(CONN_ID))
RATE = ("--rate", "{{ params.rate }}")

DOCS = """
### A backlog that one worker cannot hold

1. `profile` tells by peek what sits in the backlog.
2. `drain` moves it home, a Spark task for each slice of the backlog queues. It refuses to begin while the primary
   answers for no destination, and fails when something is left; a retry goes on where it was.
3. `reconcile` compares the ledger with what the queues hold, and fails when a message is lost.
4. `cost` bills what was counted, against quiet days.
5. `report` sums up, for the page of the pairs.

Reports and tables are in `output` below `SERVICEBUS_PAIR_HOME`. The recovery DAG starts by itself and does the same in
Airflow's workers; this one is triggered by hand.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_HOME` | environment | the folder of ledger and output |
| `SERVICEBUS_PAIR_PLACES` | environment | queues and subscriptions that are looked through |
| `SERVICEBUS_PAIR_REFERENCE` | environment | where Spark finds the settings; the connection if not set |
| `SERVICEBUS_PAIR_SPARK_CONN_ID` | environment | the connection of Spark, `spark_default` if not set |
| `SERVICEBUS_PAIR_SPARK_CONF` | environment | more settings of Spark, JSON |
| the form | Trigger | messages per second |
"""

with DAG(
    "servicebus_pair_at_scale",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={"rate": Param(2000, type="integer", minimum=1, title="Messages per second, over all tasks")},
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
        [*PAIR, *("--ledger", LEDGER), *("--entities", PLACES), *("--output", f"{OUTPUT}/reconcile")],
    )
    cost = submit(
        "cost",
        JOBS / "cost.py",
        [*PAIR, *("--ledger", LEDGER), *("--metered", REPORT), *("--output", f"{OUTPUT}/cost")],
    )

    # The task is on the pair, so that the page finds the run and shows its report.
    @task(inlets=[pair_asset(CONN_ID)])
    def report(drained: str, folder: str) -> dict[str, Any]:
        """Sum up what Spark moved and found."""
        done = json.loads(Path(drained).read_text())
        summary = Path(folder) / "reconcile" / "summary.json"
        return {
            "moved": done["moved"],
            "dead_lettered": done["dead_lettered"],
            "duplicates_possible": done["duplicates_possible"],
            "seconds": done["seconds"],
            "lost": json.loads(summary.read_text())["totals"]["lost"],
            "report": str(summary.with_name("report.html")),
        }

    profile >> drain >> [reconcile, cost]
    reconcile >> report(drained=REPORT, folder=OUTPUT)
