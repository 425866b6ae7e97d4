"""Publishes a month or a year of real flights through a pair of namespaces, from Spark and from a task."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param, task
from local_spark import pair_reference, submit

from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.record import ServiceBusPairRecordOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
# Characters of a run id that a folder of Spark's must not have.
RUN = "{{ run_id | replace(':', '') | replace('+', '_') }}"
OUTPUT = f"{HOME}/output/{RUN}"
MANIFEST = f"{OUTPUT}/manifest.json"

DOCS = """
### Flights pipeline

Sends one message per flight of a month or of the whole year (336,776) to the queue `flights`, one per delayed
flight to the topic `delays`, one per carrier and day with the delay statistics to the queue `statistics` (all from
Spark) and a few to the queue `briefings` (from a task). All of them go through failover-aware sends: an outage of
the primary delays nothing and loses nothing. What could not be delivered waits in the backlog on the secondary, and
`servicebus_pair_recovery` brings it home, or `servicebus_pair_at_scale` in Spark.

It may run again at any time: message ids depend on the flights and on the run, never on the attempt.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_HOME` | environment | the folder of ledger, tables and manifests |
| `SERVICEBUS_PAIR_REFERENCE` | environment | where Spark finds the settings; the connection if not set |
| `SERVICEBUS_PAIR_SPARK_CONN_ID` | environment | the connection of Spark, `spark_default` if not set |
| `SERVICEBUS_PAIR_SPARK_CONF` | environment | more settings of Spark, JSON |
| the form | Trigger | which month or the year, how fast |
"""


# [START known_health]
@task(inlets=[pair_asset(CONN_ID)])
async def known_health() -> str:
    """Hand what Airflow knows of the entities' health to the Spark job: small, and no secret."""
    known = await AirflowHealthStore(CONN_ID).known()
    return json.dumps({entity: health.to_json() for entity, health in known.items()})


# [END known_health]


with DAG(
    "flights_pipeline",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
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
            description="Nothing means the whole year.",
        ),
        "rate": Param(600, type="integer", minimum=1, maximum=20_000, title="Messages per second"),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    provision = ServiceBusPairProvisionOperator(task_id="provision", conn_id=CONN_ID)

    publish_flights = submit(
        "publish_flights",
        Path(__file__).parent / "jobs" / "publish_flights.py",
        [
            *("--pair", pair_reference(CONN_ID)),
            *("--month", "{{ params.month or 'all' }}"),
            *("--rate", "{{ params.rate }}"),
            *("--ledger", LEDGER),
            *("--output", OUTPUT),
            *("--run", "{{ run_id }}"),
            # Fixed per run: a retried task must send the same messages.
            *("--scheduled-base", "{{ dag_run.run_after.timestamp() | int }}"),
            *("--manifest", MANIFEST),
            *("--health", "{{ ti.xcom_pull(task_ids='known_health') }}"),
        ],
    )

    send = ServiceBusPairSendOperator(
        task_id="send_briefing",
        conn_id=CONN_ID,
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
    record = ServiceBusPairRecordOperator(task_id="record_health", conn_id=CONN_ID, manifest=MANIFEST)
    # [END record_health]

    health = known_health()
    provision >> [health, send]
    health >> publish_flights
    [publish_flights, send] >> record
