"""Drains the backlog of an outage to the primary, as soon as the primary answers again."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import (  # type: ignore[attr-defined]  # its stubs omit deadlines
    DAG,
    AssetOrTimeSchedule,
    AssetWatcher,
    AsyncCallback,
    CronTriggerTimetable,
    DeadlineAlert,
    DeadlineReference,
    Param,
    task,
)
from airflow.sdk.exceptions import AirflowSkipException
from local_spark import package_folder, pair_reference, submit
from pair_environment import number

from servicebus_pair.assets import backlog_asset, failover_asset
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.notifications import recovery as notifications
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
SCHEDULE = os.environ.get("SERVICEBUS_PAIR_RECOVERY_SCHEDULE", "@hourly")
DEADLINE_MINUTES = number("SERVICEBUS_PAIR_RECOVERY_DEADLINE_MINUTES", 60, low=0, high=525_600)
WAIT_HOURS = number("SERVICEBUS_PAIR_RECOVERY_WAIT_HOURS", 24, low=0.01, high=8760)
POLL_SECONDS = number("SERVICEBUS_PAIR_POLL_SECONDS", 10, low=1, high=3600)
ENTITIES = os.environ.get("SERVICEBUS_PAIR_PLACES", "flights,briefings,statistics,delays/Subscriptions/all")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
# Where the Service Bus pairs page looks for the report of a run, if its setting `reports` is HOME/output.
RECONCILE_OUTPUT = (
    f"{HOME}/output/{{{{ dag.dag_id }}}}/{{{{ run_id | replace(':', '') | replace('+', '_') }}}}/reconcile"
)

DOCS = """
### Recovery of a pair of namespaces

Starts when a task detected a failover, when the watcher saw messages of any sender in the backlog, and once an hour in
case both were missed. It may also be triggered by hand; with an empty backlog it ends early.

1. `wait_for_primary` waits in the triggerer until the primary accepts pings again.
2. `backlog_queues` lists the queues that hold messages, and ends the run here if there are none.
3. `drain` moves the messages to the primary, one task per queue. It can be killed and repeated, because a message
   leaves the backlog only after the primary has confirmed it.
4. `reconcile` compares the ledger with the contents of the queues, in Spark.
5. `report` returns a summary and sends it to the notifier.

With *Dry run*, only `plan` runs: it lists the waiting messages by entity.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_RECOVERY_SCHEDULE` | environment | the fallback schedule, cron in UTC; default `@hourly` |
| `SERVICEBUS_PAIR_POLL_SECONDS` | environment | interval of backlog readings and of pings; default 10 |
| `SERVICEBUS_PAIR_RECOVERY_WAIT_HOURS` | environment | how long to wait for the primary; default 24 |
| `SERVICEBUS_PAIR_RECOVERY_DEADLINE_MINUTES` | environment | after how long a run is late; default 60, 0 for never |
| `SERVICEBUS_PAIR_NOTIFIER`, `..._ARGUMENTS` | environment | the notifier of the outcome |
| `SERVICEBUS_PAIR_PLACES` | environment | what to reconcile: queues and `topic/Subscriptions/name`, with commas |
| `SERVICEBUS_PAIR_HOME` | environment | folder of the ledger and the reports |
| trigger form | | the queues, the rate, dry run, whether to reconcile |
"""

RETRYING = {
    "retries": 3,
    "retry_delay": timedelta(seconds=15),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=10),
}

FORM = {
    "queues": Param(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Only these backlog queues",
        description="Their paths, one per line; empty for all in use.",
    ),
    "rate": Param(
        None,
        type=["null", "number"],
        exclusiveMinimum=0,
        title="Messages per second",
        description="The limit for all queues together; empty for no limit.",
    ),
    "plan_only": Param(
        default=False,
        type="boolean",
        title="Dry run",
        description="Peek into the queues and list the messages by entity; move nothing.",
    ),
    "reconcile": Param(
        default=True,
        type="boolean",
        title="Reconcile",
        description="Verify with Spark, from the ledger and the queues, that nothing was lost.",
    ),
}


def skip_unless(param: str, *, value: bool) -> Callable[[Any], None]:
    """Return a ``pre_execute`` callback that skips a task unless the form has this value."""

    def check(context: Any) -> None:
        if context["params"][param] is not value:
            raise AirflowSkipException(f"{param} is {not value} in the trigger form")

    return check


# [START recovery_schedule]
# A task's failover event is published when the task ends; the watcher sees the backlog of a job that still runs.
backlog = backlog_asset(
    CONN_ID,
    watchers=[
        AssetWatcher(
            name=f"{CONN_ID}_backlog", trigger=BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=POLL_SECONDS)
        )
    ],
)

deadline = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(minutes=DEADLINE_MINUTES),
    callback=AsyncCallback(notifications.late),
)

with DAG(
    "servicebus_pair_recovery",
    schedule=AssetOrTimeSchedule(
        assets=failover_asset(CONN_ID) | backlog,
        timetable=CronTriggerTimetable(SCHEDULE, timezone="UTC"),
    ),
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
    catchup=False,
    # Events during a run start one further run after it.
    max_active_runs=1,
    deadline=deadline if DEADLINE_MINUTES else None,
    on_failure_callback=notifications.failed,
    default_args=RETRYING,
    params=FORM,
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [END recovery_schedule]

    # [START wait_for_primary]
    wait = ServiceBusPrimaryHealthSensor(
        task_id="wait_for_primary",
        servicebus_pair_conn_id=CONN_ID,
        deferrable=True,
        poke_interval=POLL_SECONDS,
        timeout=WAIT_HOURS * 3600,
        pre_execute=skip_unless("plan_only", value=False),
    )
    # [END wait_for_primary]

    # [START plan]
    plan = ServiceBusPairSyphonOperator(
        task_id="plan",
        servicebus_pair_conn_id=CONN_ID,
        queues="{{ params.queues | join(',') }}",
        plan_only=True,
        # Runs instead of the recovery; otherwise Airflow skips it without a worker.
        trigger_rule="all_skipped",
    )
    # [END plan]

    # [START backlog_queues]
    @task.short_circuit
    def backlog_queues(params: Any = None) -> list[str]:
        """Return the queues that hold messages; an empty list ends the run."""
        return list(ServiceBusPairHook(CONN_ID).filled_backlog_queues(params["queues"] or None))

    # [END backlog_queues]

    queues = backlog_queues()

    # [START drain]
    drain = ServiceBusPairSyphonOperator.partial(
        task_id="drain",
        servicebus_pair_conn_id=CONN_ID,
        # The form's rate applies to all queues together.
        rate="{{ params.rate / (ti.xcom_pull(task_ids='backlog_queues') | length) if params.rate else '' }}",
        ledger=LEDGER,
        deferrable=True,
        poll_interval=POLL_SECONDS,
        execution_timeout=timedelta(hours=6),
        map_index_template="{{ task.queues }}",
    ).expand(queues=queues)
    # [END drain]

    # [START reconcile]
    reconcile = submit(
        "reconcile",
        package_folder("servicebus_pair") / "spark" / "jobs" / "reconcile.py",
        [
            *("--pair", pair_reference(CONN_ID)),
            *("--ledger", LEDGER),
            *("--entities", ENTITIES),
            *("--output", RECONCILE_OUTPUT),
        ],
        pre_execute=skip_unless("reconcile", value=True),
    )
    # [END reconcile]

    @task(trigger_rule="none_failed_min_one_success", on_success_callback=notifications.recovered)
    def report(drains: Iterable[dict[str, Any]], folder: str, dag_run: Any = None) -> dict[str, Any]:
        """Summarise what the successful tries moved, and what Spark found."""
        done, moved, dead_lettered = list(drains), Counter[str](), Counter[str]()
        for each in done:
            moved.update(each["moved"])
            dead_lettered.update(each["dead_lettered"])
        summary = Path(folder) / "summary.json"
        proven = json.loads(summary.read_text())["totals"] if summary.exists() else None
        return {
            "queues": len(done),
            "moved": dict(moved),
            "dead_lettered": dict(dead_lettered),
            "duplicates_possible": sum(each["duplicates_possible"] for each in done),
            "seconds": round((datetime.now(UTC) - dag_run.start_date).total_seconds(), 1),
            "lost": None if proven is None else proven["lost"],
            "report": proven is not None,
        }

    wait >> [plan, queues]
    summary = report(drains=drain.output, folder=RECONCILE_OUTPUT)
    drain >> reconcile >> summary
