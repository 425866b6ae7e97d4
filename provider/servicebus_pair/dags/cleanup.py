"""``cleanup_dag``: deletes backlog queues that are no longer needed, after a person has approved the list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from servicebus_pair.airflow_runtime.airflow_version import approval_timeout as timeout_of_approval
from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID
from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator

__all__ = ["cleanup_dag"]

DOCS = """
### Cleanup of a pair of namespaces

1. `plan` lists the backlog queues to delete: those beyond the number in the connection and those that require sessions
   although `ordering` is not `session`, or all of them to decommission the pair.
2. `planned_queues` ends the run here if there are none.
3. `approve` waits for a person's decision, under *Required actions*. No decision in time counts as a rejection.
4. `delete` deletes exactly these queues. A queue that holds messages is kept, unless *Including their messages* was
   chosen; those messages are then lost. After a rejection the task is skipped.
5. `report` returns which queues were deleted, which were not, and why.

It is safe to run again.
"""

FORM = {
    "what": Param(
        "extra",
        enum=["extra", "all"],
        values_display={"extra": "queues that are not in use", "all": "all queues of this pair"},
        title="Backlog queues to delete",
    ),
    "force": Param(
        default=False,
        type="boolean",
        title="Including their messages",
        description="Also delete queues that hold messages. Those messages are lost.",
    ),
}


def cleanup_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    approval_timeout: timedelta = timedelta(hours=24),
    **dag_options: Any,
) -> DAG:
    """Return a DAG that is triggered by hand and deletes backlog queues once a person has approved.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_cleanup``.
    :param approval_timeout: no decision for this long counts as a rejection.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    with pair_dag(
        "cleanup",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        params=FORM,
        doc_md=DOCS,
    ) as dag:
        # [START cleanup_plan]
        plan = ServiceBusPairCleanupOperator(
            task_id="plan",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            what="{{ params.what }}",
            plan_only=True,
        )
        # [END cleanup_plan]

        @task.short_circuit
        def planned_queues(plan: dict[str, Any]) -> list[str]:
            """Return the planned queues; an empty list ends the run."""
            return list(plan["planned"])

        queues = planned_queues(plan.output)  # type: ignore[arg-type]  # Airflow types no results

        # [START cleanup_approve]
        approve = ApprovalOperator(
            task_id="approve",
            subject="Delete {{ ti.xcom_pull(task_ids='planned_queues') | length }} backlog queues of "
            f"{servicebus_pair_conn_id}?",
            body=(
                "{% if params.force %}**Including the messages that they hold, which will be lost.**\n\n{% endif %}"
                "{% for queue in ti.xcom_pull(task_ids='planned_queues') %}- `{{ queue }}`\n{% endfor %}"
            ),
            defaults="Reject",
            retries=0,
            **timeout_of_approval(approval_timeout),
        )
        # [END cleanup_approve]

        # [START cleanup_delete]
        delete = ServiceBusPairCleanupOperator(
            task_id="delete",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            what="{{ params.what }}",
            only=queues,
            force="{{ params.force }}",
        )
        # [END cleanup_delete]

        # [START cleanup_report]
        @task(trigger_rule="none_failed")
        def report(queues: list[str], done: dict[str, Any] | None, ti: Any = None) -> dict[str, Any]:
            """Return the outcome for each planned queue; a rejection is a success too."""
            # Not an argument: Airflow skips the tasks directly downstream of a rejected approval; this one must run.
            answer = ti.xcom_pull(task_ids="approve")
            deleted, kept = ([], {}) if done is None else (done["deleted"], done["kept"])
            reasons = {queue: f"it holds {held} messages" for queue, held in kept.items()}
            default = "not approved" if done is None else "it no longer exists"
            return {
                "approved": done is not None,
                "approved_by": None if answer is None else answer["responded_by_user"]["name"],
                "deleted": deleted,
                "not_deleted": {queue: reasons.get(queue, default) for queue in queues if queue not in deleted},
            }

        # [END cleanup_report]

        queues >> approve >> delete
        report(queues, delete.output)  # type: ignore[arg-type]  # as above
    return dag
