"""Brings home what an outage left in the backlog, as soon as the primary answers again."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import (
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

from servicebus_pair.hooks.assets import backlog_asset, failover_asset
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.notifications import recovery as notices
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
SCHEDULE = os.environ.get("SERVICEBUS_PAIR_RECOVERY_SCHEDULE", "@hourly")
DEADLINE_MINUTES = number("SERVICEBUS_PAIR_RECOVERY_DEADLINE_MINUTES", 60, low=0, high=525_600)
WAIT_HOURS = number("SERVICEBUS_PAIR_RECOVERY_WAIT_HOURS", 24, low=0.01, high=8760)
POLL_SECONDS = number("SERVICEBUS_PAIR_POLL_SECONDS", 10, low=1, high=3600)
PLACES = os.environ.get("SERVICEBUS_PAIR_PLACES", "flights,briefings,statistics,delays/Subscriptions/all")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()
LEDGER = str(HOME / "ledger")
RECONCILED = f"{HOME}/output/{{{{ run_id | replace(':', '') | replace('+', '_') }}}}/reconcile"

DOCS = """
### Recovery of a pair of namespaces

Starts when a task found a failover, when the watcher saw messages in the backlog, whoever left them there, and
once an hour in case both were missed. It may be triggered at any time; with an empty backlog it ends early.

1. `wait_for_primary` waits in the triggerer until the primary accepts pings again.
2. `backlog_queues` looks which queues hold messages, and ends the run here when none does.
3. `drain` moves the messages home, a task per queue. It can be killed and repeated: a message leaves the backlog
   after the primary has confirmed it.
4. `reconcile` compares the ledger with what the queues hold, in Spark.
5. `report` sums up, and tells the notifier.

With *Only look*, `plan` tells what waits for whom, and nothing else is done.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_RECOVERY_SCHEDULE` | environment | the slow schedule, cron in UTC, `@hourly` if not set |
| `SERVICEBUS_PAIR_POLL_SECONDS` | environment | pause between looks at the backlog, and between pings, 10 if not set |
| `SERVICEBUS_PAIR_RECOVERY_WAIT_HOURS` | environment | how long to wait for the primary, 24 if not set |
| `SERVICEBUS_PAIR_RECOVERY_DEADLINE_MINUTES` | environment | when a run is late, 60 if not set, 0: never |
| `SERVICEBUS_PAIR_NOTIFIER`, `..._ARGUMENTS` | environment | who is told how it went |
| `SERVICEBUS_PAIR_PLACES` | environment | where `reconcile` looks: queues and `topic/Subscriptions/name`, with commas |
| `SERVICEBUS_PAIR_HOME` | environment | the folder of ledger and reports |
| the form | Trigger | which queues, how fast, only look, reconcile or not |
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
        description="Their paths, one per line; none means all in use.",
    ),
    "rate": Param(
        None,
        type=["null", "number"],
        exclusiveMinimum=0,
        title="Messages per second",
        description="At most, of all queues together; nothing means no limit.",
    ),
    "plan_only": Param(
        default=False,
        type="boolean",
        title="Only look",
        description="Tell what waits for whom, by peeking; move nothing.",
    ),
    "reconcile": Param(
        default=True,
        type="boolean",
        title="Reconcile",
        description="Prove with Spark, from the ledger and the queues, that nothing was lost.",
    ),
}


def when(question: str, *, answer: bool) -> Callable[[Any], None]:
    """Return what skips a task before it begins, unless the form says this."""

    def check(context: Any) -> None:
        if context["params"][question] is not answer:
            raise AirflowSkipException(f"the form says: {question} is {not answer}")

    return check


# [START recovery_schedule]
# A task's own event comes when the task ends. The watcher sees the backlog of a job that is still running.
backlog = backlog_asset(
    CONN_ID,
    watchers=[AssetWatcher(name=f"{CONN_ID}_backlog", trigger=BacklogTrigger(conn_id=CONN_ID, interval=POLL_SECONDS))],
)

deadline = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(minutes=DEADLINE_MINUTES),
    callback=AsyncCallback(notices.late),
)

with DAG(
    "servicebus_pair_recovery",
    schedule=AssetOrTimeSchedule(
        assets=failover_asset(CONN_ID) | backlog,
        timetable=CronTriggerTimetable(SCHEDULE, timezone="UTC"),
    ),
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
    catchup=False,
    # What happens meanwhile starts one more run behind this one.
    max_active_runs=1,
    deadline=deadline if DEADLINE_MINUTES else None,
    on_failure_callback=notices.failed,
    default_args=RETRYING,
    params=FORM,
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [END recovery_schedule]

    # [START wait_for_primary]
    wait = ServiceBusPrimaryHealthSensor(
        task_id="wait_for_primary",
        conn_id=CONN_ID,
        deferrable=True,
        poke_interval=POLL_SECONDS,
        timeout=WAIT_HOURS * 3600,
        pre_execute=when("plan_only", answer=False),
    )
    # [END wait_for_primary]

    # [START plan]
    plan = ServiceBusPairSyphonOperator(
        task_id="plan",
        conn_id=CONN_ID,
        queues="{{ params.queues | join(',') }}",
        plan_only=True,
        # Instead of the recovery: otherwise it takes no worker's time.
        trigger_rule="all_skipped",
    )
    # [END plan]

    # [START backlog_queues]
    @task.short_circuit
    def backlog_queues(params: dict[str, Any]) -> list[str]:
        """Hand on the queues that hold messages; with none there is nothing to do."""
        return list(ServiceBusPairHook(CONN_ID).filled_backlog_queues(params["queues"] or None))

    # [END backlog_queues]

    queues = backlog_queues()

    # [START drain]
    drain = ServiceBusPairSyphonOperator.partial(
        task_id="drain",
        conn_id=CONN_ID,
        # The form's rate is that of all queues together.
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
            *("--entities", PLACES),
            *("--output", RECONCILED),
        ],
        pre_execute=when("reconcile", answer=True),
    )
    # [END reconcile]

    @task(trigger_rule="none_failed_min_one_success", on_success_callback=notices.recovered)
    def report(drains: Iterable[dict[str, Any]], folder: str, dag_run: Any = None) -> dict[str, Any]:
        """Sum up what the tries that ended well have moved, and what Spark found."""
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
            "report": None if proven is None else str(summary.with_name("report.html")),
        }

    wait >> [plan, queues]
    drain >> reconcile >> report(drains=drain.output, folder=RECONCILED)
