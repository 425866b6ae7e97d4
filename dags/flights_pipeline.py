"""Publishes a month or a year of real flights through a pair of namespaces, from Spark and from a task."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param, task

from servicebus_pair.airflow_runtime.run_folder import RUN_FOLDER
from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.assets import pair_asset
from servicebus_pair.dags.spark_task import SparkJobs
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.record import ServiceBusPairRecordOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
OUTPUT = f"{HOME}/output/{RUN_FOLDER}"
MANIFEST = f"{OUTPUT}/manifest.json"
SPARK = SparkJobs(
    servicebus_pair_conn_id=CONN_ID,
    spark_conn_id=os.environ.get("SERVICEBUS_PAIR_SPARK_CONN_ID", "spark_default"),
    conf=json.loads(os.environ.get("SERVICEBUS_PAIR_SPARK_CONF", "{}")),
    pair_reference=os.environ.get("SERVICEBUS_PAIR_REFERENCE"),
)

DOCS = """
### Flights pipeline

Sends one message per flight of a month or of the whole year (336,776) to the queue `flights`, one per delayed
flight to the topic `delays`, one per carrier and day with the delay statistics to the queue `statistics` (all from
Spark) and a few to the queue `briefings` (from a task). During an outage of the primary, messages are diverted to the
backlog on the secondary, so none is lost. `servicebus_pair_recovery` drains the backlog later, or
`servicebus_pair_at_scale` in Spark.

It is safe to run again: message ids depend on the flights and on the run, never on the attempt.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_HOME` | environment | folder of the ledger, tables and manifests |
| `SERVICEBUS_PAIR_REFERENCE` | environment | where Spark reads the settings; default: the connection |
| `SERVICEBUS_PAIR_SPARK_CONN_ID` | environment | id of the Spark connection; default `spark_default` |
| `SERVICEBUS_PAIR_SPARK_CONF` | environment | additional Spark settings, as JSON |
| trigger form | | the month, and the rate |
"""


# [START known_health]
@task(inlets=[pair_asset(CONN_ID)])
async def known_health() -> str:
    """Return the shared health of the entities for the Spark job: small, and no secrets."""
    known = await AirflowHealthStore(CONN_ID).known()
    return json.dumps({entity: health.to_json() for entity, health in known.items()})


# [END known_health]


with DAG(
    "flights_pipeline",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    params={
        "month": Param(
            1,
            type=["null", "integer"],
            minimum=1,
            maximum=12,
            title="Month of 2013",
            description="Empty for the whole year.",
        ),
        "rate": Param(600, type="integer", minimum=1, maximum=20_000, title="Messages per second"),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    provision = ServiceBusPairProvisionOperator(task_id="provision", servicebus_pair_conn_id=CONN_ID)

    publish_flights = SPARK.submit(
        "publish_flights",
        Path(__file__).parent / "jobs" / "publish_flights.py",
        [
            "--month={{ params.month or 'all' }}",
            "--rate={{ params.rate }}",
            f"--ledger={LEDGER}",
            f"--output={OUTPUT}",
            "--run={{ run_id }}",
            # Fixed for the run, because a retried task must send the same messages.
            "--scheduled-base={{ dag_run.run_after.timestamp() | int }}",
            f"--manifest={MANIFEST}",
            "--health={{ ti.xcom_pull(task_ids='known_health') }}",
        ],
    )

    send = ServiceBusPairSendOperator(
        task_id="send_briefing",
        servicebus_pair_conn_id=CONN_ID,
        entity="briefings",
        messages=[
            {
                "body": json.dumps({"briefing": number, "month": "{{ params.month or 'all' }}"}),
                "subject": "briefing",
                "content_type": "application/json",
                "session_id": f"crew-{number % 5}",
                "time_to_live": 7 * 86_400,
            }
            for number in range(25)
        ],
        ledger=LEDGER,
    )

    # [START record_health]
    record = ServiceBusPairRecordOperator(task_id="record_health", servicebus_pair_conn_id=CONN_ID, manifest=MANIFEST)
    # [END record_health]

    health = known_health()
    provision >> [health, send]
    health >> publish_flights
    [publish_flights, send] >> record
