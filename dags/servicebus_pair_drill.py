"""Game day: fails over on purpose once a month and verifies that every message arrives."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.sdk import DAG, Param, Variable, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from servicebus_pair.assets import pair_asset
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
SCHEDULE = os.environ.get("SERVICEBUS_PAIR_DRILL_SCHEDULE", "@monthly")
MAX_DELAY: Final = timedelta(hours=1)

DOCS = """
### Drill of a pair of namespaces

For one entity after the other, it fails the entity over, sends marked messages, fails back, drains the backlog, and
verifies that everything arrived. The primary stays up; messages that applications send during the drill arrive when it
ends. Consumers recognise the marked messages by the application property `x-servicebus-pair-drill`.

The DAG is created paused, because a game day should be announced. A scheduled run that could not start within an hour,
such as the last one before the DAG was unpaused, is skipped.

A drill with findings fails its task and is not retried, because a passing retry would hide them. An entity that is
already failed over is not drilled.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_DRILL_SCHEDULE` | environment | the schedule; default `@monthly` |
| `servicebus_pair_drill_entities` | Airflow variable, a JSON list | the entities, if the form names none |
| trigger form | | the entities, the number of messages, the time limit |
"""

FORM = {
    "entities": Param(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Queues and topics",
        description="One per line; empty for those in the Airflow variable servicebus_pair_drill_entities.",
    ),
    "messages": Param(10, type="integer", minimum=1, maximum=10_000, title="Marked messages per entity"),
    "limit": Param(
        120,
        type="integer",
        minimum=1,
        maximum=3600,
        title="Time limit, s",
        description="For the failover, and again for the drain.",
    ),
    "announce": Param(
        default=False,
        type="boolean",
        title="Emit asset events",
        description="Emit the failover and recovery events of a real outage, which start the DAGs scheduled on them.",
    ),
}

with DAG(
    "servicebus_pair_drill",
    schedule=SCHEDULE,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
    catchup=False,
    # Copying this file must not start failovers in production.
    is_paused_upon_creation=True,
    max_active_runs=1,
    params=FORM,
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):

    @task
    def entities(params: Any = None, dag_run: Any = None) -> list[str]:
        """Return the entities of the form, else of the variable, else the example's; skip a run that is late."""
        # Airflow starts the last missed run of a schedule as soon as a DAG is unpaused.
        if dag_run.run_type in {"scheduled", "backfill"} and datetime.now(UTC) - dag_run.run_after > MAX_DELAY:
            raise AirflowSkipException(
                f"the game day of {dag_run.run_after} is over: trigger one, or wait for the next"
            )
        unknown = sorted(set(params) - set(FORM))
        if unknown:
            raise AirflowFailException(f"unknown fields {unknown}: allowed are {sorted(FORM)}; nothing was drilled")
        chosen = params["entities"]
        if not chosen:
            chosen = Variable.get("servicebus_pair_drill_entities", default=["flights"], deserialize_json=True)
        return list(chosen)

    # [START drill]
    drills = ServiceBusPairDrillOperator.partial(
        task_id="drill",
        servicebus_pair_conn_id=CONN_ID,
        messages="{{ params.messages }}",
        limit="{{ params.limit }}",
        announce="{{ params.announce }}",
        execution_timeout=timedelta(hours=3),
        # Before a mapped task runs, Airflow only knows inlets given here; the Service Bus pairs page looks for them.
        inlets=[pair_asset(CONN_ID)],
        # One at a time: a drill drains all backlog queues, including messages that another one waits for.
        max_active_tis_per_dagrun=1,
    ).expand(entity=entities())
    # [END drill]

    @task
    def report(drills: list[dict[str, Any]]) -> dict[str, Any]:
        """Summarise the drills; runs only if all of them passed."""
        delivered = [drill["entity"] for drill in drills if drill["pings_delivered"]]
        return {
            "passed": [drill["entity"] for drill in drills],
            "longest_failover_seconds": max(drill["failed_over_seconds"] for drill in drills),
            "longest_drain_seconds": max(drill["drain_seconds"] for drill in drills),
            # The service delivers pings of these entities, so their consumers should skip pings.
            "pings_delivered_by": delivered,
        }

    report(drills.output)
