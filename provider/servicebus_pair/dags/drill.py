"""``drill_dag``: game day, fails over on purpose and verifies that every message arrives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.sdk import DAG, Param, task

from servicebus_pair.dags.pair_dag import check_arguments, check_form, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator

__all__ = ["drill_dag"]

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
"""


def drill_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    entities: Sequence[str],
    schedule: Any = "@monthly",
    **dag_options: Any,
) -> DAG:
    """Return a DAG that drills entities of a pair on a schedule.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_drill``.
    :param entities: the queues and topics to drill, unless the form names others.
    :param schedule: any schedule of Airflow; ``None`` to trigger it by hand only.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    form = {
        "entities": Param(
            list(entities),
            type="array",
            items={"type": "string", "minLength": 1},
            minItems=1,
            title="Queues and topics",
            description="One per line.",
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
        "both": Param(
            default=False,
            type="boolean",
            title="Both namespaces",
            description="Drill an outage of both: the marked messages go to the pair's spool, and home from there.",
        ),
        "announce": Param(
            default=False,
            type="boolean",
            title="Emit asset events",
            description="Emit the failover and recovery events of a real outage, which start the DAGs scheduled on "
            "them.",
        ),
    }
    with pair_dag(
        "drill",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        schedule=schedule,
        start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
        catchup=False,
        # Adding this DAG must not start failovers in production.
        is_paused_upon_creation=True,
        params=form,
        default_args={},
        doc_md=DOCS,
    ) as dag:

        @task.short_circuit
        def entities_to_drill(params: Any = None, dag_run: Any = None) -> list[str]:
            """Return the entities to drill: none, which ends the run, if it is late."""
            check_form(params, form)
            # Airflow starts the last missed run of a schedule as soon as a DAG is unpaused.
            if dag_run.run_type in {"scheduled", "backfill"} and datetime.now(UTC) - dag_run.run_after > MAX_DELAY:
                return []
            return list(params["entities"])

        # [START drill]
        drills = ServiceBusPairDrillOperator.partial(
            task_id="drill",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            messages="{{ params.messages }}",
            limit="{{ params.limit }}",
            both="{{ params.both }}",
            announce="{{ params.announce }}",
            execution_timeout=timedelta(hours=3),
            # One at a time: a drill drains all backlog queues, including messages that another one waits for.
            max_active_tis_per_dagrun=1,
        ).expand(entity=entities_to_drill())
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
    return dag
