"""``recovery_dag``: drains the backlog of an outage to the primary, as soon as the primary answers again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, AssetWatcher, BaseNotifier, Param, task

from servicebus_pair.airflow_runtime.airflow_version import (
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    backoff_multiplier,
)
from servicebus_pair.airflow_runtime.pair_task import failing_at_once
from servicebus_pair.airflow_runtime.task_ledger import StoragePath
from servicebus_pair.assets import backlog_asset, drained_asset, failover_asset
from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.notifications.recovery import RecoveryNotifier
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger

__all__ = ["recovery_dag"]

DOCS = """
### Recovery of a pair of namespaces

Starts when a task detected a failover, when the watcher saw messages of any sender in the backlog, and on a schedule in
case both were missed. It may also be triggered by hand; with an empty backlog it ends early.

1. `mode` chooses between the recovery and, with *Dry run* in the form, `plan`, which lists the waiting messages.
2. `wait_for_primary` waits in the triggerer until the primary accepts pings again.
3. `backlog_queues` lists the queues that hold messages, and `spool` if that does; it ends the run if none does.
4. `drain` moves the messages to the primary, one task per queue, and one for the spool. It can be killed and repeated,
   because a message leaves the backlog only after the primary has confirmed it.
5. `report` returns a summary, sends it to the notifier, and updates the asset `servicebus-pair://CONN_ID/drained`,
   which starts the proof.
"""

RETRYING = {
    "retries": 3,
    "retry_delay": timedelta(seconds=15),
    "retry_exponential_backoff": backoff_multiplier(),
    "max_retry_delay": timedelta(minutes=10),
}


def recovery_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    schedule: str | None = "@hourly",
    rate: float | None = None,
    notifier: BaseNotifier | Sequence[BaseNotifier] = (),
    ledger: StoragePath | None = None,
    poll_interval: timedelta = timedelta(seconds=10),
    wait_timeout: timedelta = timedelta(hours=24),
    **dag_options: Any,
) -> DAG:
    """Return a DAG that recovers a pair after an outage; it needs no Spark.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_recovery``.
    :param schedule: cron expression in UTC of the runs that look for missed outages; ``None`` for none.
    :param rate: what the form suggests as limit, in messages per second for all queues together; no limit when not
        given.
    :param notifier: one or more notifiers that are told what was moved, and of a failed run, in ``{{ notice }}``.
    :param ledger: folder for a record of each moved message; no ledger when not given.
    :param poll_interval: time between two readings of the backlog, and between two pings.
    :param wait_timeout: how long to wait for the primary before the run fails.
    :param dag_options: any argument of ``DAG``, such as ``deadline``.
    """
    check_arguments(locals())
    conn_id = servicebus_pair_conn_id
    notifiers = [notifier] if isinstance(notifier, BaseNotifier) else list(notifier)
    # [START recovery_schedule]
    # A task's failover event is published when the task ends; the watcher sees the backlog of a job that still runs.
    watcher = AssetWatcher(
        name=f"{conn_id}_backlog",
        trigger=BacklogTrigger(servicebus_pair_conn_id=conn_id, interval=poll_interval),
    )
    assets = failover_asset(conn_id) | backlog_asset(conn_id, watchers=[watcher])

    with pair_dag(
        "recovery",
        servicebus_pair_conn_id=conn_id,
        dag_id=dag_id,
        options=dag_options,
        schedule=assets
        if schedule is None
        else AssetOrTimeSchedule(assets=assets, timetable=CronTriggerTimetable(schedule, timezone="UTC")),
        start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
        catchup=False,
        # Events during a run start one further run after it.
        max_active_runs=1,
        on_failure_callback=RecoveryNotifier.each(notifiers, outcome="failed"),
        default_args=RETRYING,
        params=_form(rate),
        doc_md=DOCS,
    ) as dag:
        # [END recovery_schedule]

        # [START mode]
        @task.branch
        def mode(params: Any = None) -> str:
            """Choose between the dry run and the recovery."""
            return "plan" if params["plan_only"] else "wait_for_primary"

        # [END mode]

        # [START plan]
        plan = ServiceBusPairSyphonOperator(
            task_id="plan",
            servicebus_pair_conn_id=conn_id,
            queues="{{ params.queues | join(',') }}",
            plan_only=True,
        )
        # [END plan]

        # [START wait_for_primary]
        wait = ServiceBusPrimaryHealthSensor(
            task_id="wait_for_primary",
            servicebus_pair_conn_id=conn_id,
            deferrable=True,
            poke_interval=poll_interval,
            timeout=wait_timeout,
        )
        # [END wait_for_primary]

        # [START backlog_queues]
        @task.short_circuit
        def backlog_queues(params: Any = None) -> list[str]:
            """Return the queues that hold messages; an empty list ends the run."""
            with failing_at_once():
                return list(ServiceBusPairHook(conn_id).filled_backlog_queues(params["queues"] or None))

        # [END backlog_queues]

        queues = backlog_queues()

        # [START drain]
        drain = ServiceBusPairSyphonOperator.partial(
            task_id="drain",
            servicebus_pair_conn_id=conn_id,
            # The mapped tasks share it.
            rate="{{ params.rate }}",
            ledger=ledger,
            deferrable=True,
            poll_interval=poll_interval,
            execution_timeout=timedelta(hours=6),
            map_index_template="{{ task.queues }}",
        ).expand(queues=queues)
        # [END drain]

        drained = drained_asset(conn_id)

        # [START report]
        @task(outlets=[drained], on_success_callback=RecoveryNotifier.each(notifiers, outcome="recovered"))
        def report(drains: Iterable[dict[str, Any]], dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
            """Summarise what the successful tries moved."""
            summary = _summary(list(drains), since=dag_run.start_date)
            outlet_events[drained].extra = summary
            return summary

        # [END report]

        mode() >> [plan, wait]
        wait >> queues
        report(drain.output)
    return dag


def _form(rate: float | None) -> dict[str, Any]:
    return {
        "queues": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            title="Only these backlog queues",
            description="Their paths, one per line, and spool for the spool; empty for all in use.",
        ),
        "rate": Param(
            rate,
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
    }


def _summary(drains: Sequence[dict[str, Any]], *, since: datetime) -> dict[str, Any]:
    moved, dead_lettered, unspooled = Counter[str](), Counter[str](), Counter[str]()
    for each in drains:
        moved.update(each["moved"])
        dead_lettered.update(each["dead_lettered"])
        unspooled.update(each["unspooled"])
    return {
        "queues": len(drains),
        "moved": dict(moved),
        "dead_lettered": dict(dead_lettered),
        "unspooled": dict(unspooled),
        "duplicates_possible": sum(each["duplicates_possible"] for each in drains),
        "seconds": round((datetime.now(UTC) - since).total_seconds(), 1),
    }
