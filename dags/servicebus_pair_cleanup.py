"""Deletes backlog queues that are no longer needed, after a person has approved the list."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task
from pair_environment import number

from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
APPROVAL_HOURS = number("SERVICEBUS_PAIR_APPROVAL_HOURS", 24, low=0.01, high=8760)

DOCS = """
### Cleanup of a pair of namespaces

1. `plan` lists the backlog queues to delete: those beyond the number in the connection and those that require sessions
   although `ordering` is not `session`, or all of them to decommission the pair.
2. `planned_queues` ends the run here if there are none.
3. `approve` waits for a person's decision, under *Required actions*. No decision within 24 hours counts as a rejection.
4. `delete` deletes exactly these queues. A queue that holds messages is kept, unless *Including their messages* was
   chosen; those messages are then lost. After a rejection the task is skipped.
5. `report` returns which queues were deleted, which were not, and why.

It is safe to run again.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_APPROVAL_HOURS` | environment | hours to wait for a decision; default 24 |
| trigger form | | which queues, and whether including their messages |
"""

with DAG(
    "servicebus_pair_cleanup",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
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
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START cleanup_plan]
    plan = ServiceBusPairCleanupOperator(
        task_id="plan", servicebus_pair_conn_id=CONN_ID, what="{{ params.what }}", plan_only=True
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
        subject="Delete {{ ti.xcom_pull(task_ids='planned_queues') | length }} backlog queues of " + CONN_ID + "?",
        body=(
            "{% if params.force %}**Including the messages that they hold, which will be lost.**\n\n{% endif %}"
            "{% for queue in ti.xcom_pull(task_ids='planned_queues') %}- `{{ queue }}`\n{% endfor %}"
        ),
        defaults="Reject",
        response_timeout=timedelta(hours=APPROVAL_HOURS),
        retries=0,
    )
    # [END cleanup_approve]

    # [START cleanup_delete]
    delete = ServiceBusPairCleanupOperator(
        task_id="delete",
        servicebus_pair_conn_id=CONN_ID,
        what="{{ params.what }}",
        only=queues,
        force="{{ params.force }}",
    )
    # [END cleanup_delete]

    # [START cleanup_report]
    @task(trigger_rule="none_failed")
    def report(queues: list[str], done: dict[str, Any] | None, ti: Any = None) -> dict[str, Any]:
        """Return the outcome for each planned queue; a rejection is a success too."""
        # Not an argument: Airflow skips the tasks directly downstream of a rejected approval, and this one must run.
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
