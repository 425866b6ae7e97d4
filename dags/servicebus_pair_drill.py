"""Game day: once a month, fail over on purpose and see that everything comes back."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.sdk import DAG, Param, Variable, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
SCHEDULE = os.environ.get("SERVICEBUS_PAIR_DRILL_SCHEDULE", "@monthly")
LATEST: Final = timedelta(hours=1)

DOCS = """
### Drill of a pair of namespaces

For one entity after the other: fails it over, sends marked messages, fails back, drains the backlog, and judges
whether everything arrived. The primary stays up; what applications send meanwhile arrives when the drill ends.
Consumers tell the marked messages by the application property `x-servicebus-pair-drill`.

It waits until somebody switches it on: a game day is announced. One that is triggered before waits until then, and
one of the schedule that could not begin within an hour, such as the last one before it was switched on, is skipped.

A drill with findings fails its task, and is not tried again: a second try would prove less than the first.
An entity that is failed over already is not drilled.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_DRILL_SCHEDULE` | environment | when, `@monthly` if not set |
| `servicebus_pair_drill_entities` | Airflow variable, a JSON list | which entities, if the form names none |
| the form | Trigger | which entities, how many messages, how long at most |
"""

FORM = {
    "entities": Param(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Queues and topics",
        description="One per line; none means those of the Airflow variable servicebus_pair_drill_entities.",
    ),
    "messages": Param(10, type="integer", minimum=1, maximum=10_000, title="Marked messages per entity"),
    "limit": Param(
        120,
        type="integer",
        minimum=1,
        maximum=3600,
        title="Longest time, s",
        description="Of the failover, and again of the drain.",
    ),
    "announce": Param(
        default=False,
        type="boolean",
        title="Announce as a real outage",
        description="Send the asset events of failover and recovery: the DAGs on them start too.",
    ),
}

with DAG(
    "servicebus_pair_drill",
    schedule=SCHEDULE,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
    catchup=False,
    # A game day is announced: nobody's production fails over because a file was copied.
    is_paused_upon_creation=True,
    max_active_runs=1,
    params=FORM,
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):

    @task
    def entities(params: dict[str, Any], dag_run: Any = None) -> list[str]:
        """Those of the form, or else of the variable, or else the example's; none for a game day that is past."""
        # Airflow makes up for the last run of a schedule as soon as a DAG is switched on.
        if dag_run.run_type in {"scheduled", "backfill"} and datetime.now(UTC) - dag_run.run_after > LATEST:
            raise AirflowSkipException(
                f"the game day of {dag_run.run_after} is past: trigger one, or wait for the next"
            )
        unknown = sorted(set(params) - set(FORM))
        if unknown:
            raise AirflowFailException(f"the form has no {unknown}: allowed are {sorted(FORM)}; nothing was drilled")
        chosen = params["entities"]
        if not chosen:
            chosen = Variable.get("servicebus_pair_drill_entities", default=["flights"], deserialize_json=True)
        return list(chosen)

    # [START drill]
    drills = ServiceBusPairDrillOperator.partial(
        task_id="drill",
        conn_id=CONN_ID,
        messages="{{ params.messages }}",
        limit="{{ params.limit }}",
        announce="{{ params.announce }}",
        execution_timeout=timedelta(hours=3),
        # A mapped task tells Airflow only so, before it runs, which pair it works on: the page looks for that.
        inlets=[pair_asset(CONN_ID)],
        # One after the other: the drain of a drill moves what any other left in the backlog.
        max_active_tis_per_dagrun=1,
    ).expand(entity=entities())
    # [END drill]

    @task
    def report(drills: list[dict[str, Any]]) -> dict[str, Any]:
        """Sum up; it is reached only when every drill has passed."""
        delivered = [drill["entity"] for drill in drills if drill["pings_delivered"]]
        return {
            "passed": [drill["entity"] for drill in drills],
            "longest_failover_seconds": max(drill["failed_over_seconds"] for drill in drills),
            "longest_drain_seconds": max(drill["drain_seconds"] for drill in drills),
            # Their consumers should skip pings: this service hands them out.
            "pings_delivered_by": delivered,
        }

    report(drills.output)
