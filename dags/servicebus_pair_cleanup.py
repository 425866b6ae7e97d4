"""Deletes backlog queues that nobody needs any more, once a person has seen which and said yes."""

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

1. `plan` looks which backlog queues could go: those beyond the number in the connection, or all of them
   when the pair is given up.
2. `planned_queues` ends the run here when there are none.
3. `approve` waits for a person, under *Required actions*. No answer within 24 hours is a no.
4. `delete` deletes those queues, and no others. One that holds a message is kept, unless *With their
   messages* was chosen: those messages are lost. After a no it is skipped.
5. `report` tells what was deleted, and what was not, and why.

It may run again at any time; what was deleted is not missed.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_APPROVAL_HOURS` | environment | how long to wait for an answer, 24 if not set |
| the form | Trigger | which queues, and whether with what they hold |
"""

with DAG(
    "servicebus_pair_cleanup",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "what": Param(
            "extra",
            enum=["extra", "all"],
            values_display={"extra": "those beyond the number in use", "all": "all of this pair"},
            title="Backlog queues to delete",
        ),
        "force": Param(
            default=False,
            type="boolean",
            title="With their messages",
            description="Delete queues that hold messages too. Those messages are lost.",
        ),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START cleanup_plan]
    plan = ServiceBusPairCleanupOperator(task_id="plan", conn_id=CONN_ID, what="{{ params.what }}", plan_only=True)
    # [END cleanup_plan]

    @task.short_circuit
    def planned_queues(plan: dict[str, Any]) -> list[str]:
        """Hand on what is planned; with nothing planned there is nothing to ask."""
        return list(plan["planned"])

    queues = planned_queues(plan.output)

    # [START cleanup_approve]
    approve = ApprovalOperator(
        task_id="approve",
        subject="Delete {{ ti.xcom_pull(task_ids='planned_queues') | length }} backlog queues of " + CONN_ID + "?",
        body=(
            "{% if params.force %}**With the messages that they hold, which are lost.**\n\n{% endif %}"
            "{% for queue in ti.xcom_pull(task_ids='planned_queues') %}- `{{ queue }}`\n{% endfor %}"
        ),
        defaults="Reject",
        response_timeout=timedelta(hours=APPROVAL_HOURS),
        retries=0,
    )
    # [END cleanup_approve]

    # [START cleanup_delete]
    delete = ServiceBusPairCleanupOperator(
        task_id="delete", conn_id=CONN_ID, what="{{ params.what }}", only=queues, force="{{ params.force }}"
    )
    # [END cleanup_delete]

    # [START cleanup_report]
    @task(trigger_rule="none_failed")
    def report(queues: list[str], done: dict[str, Any] | None, ti: Any = None) -> dict[str, Any]:
        """Tell what became of each queue that was planned; a no is a good end too."""
        # Not handed over as an argument: what comes right behind the question is skipped after a no, and then
        # Airflow keeps the answer with the question only.
        answer = ti.xcom_pull(task_ids="approve")
        deleted, kept = ([], {}) if done is None else (done["deleted"], done["kept"])
        why = {queue: f"it holds {held} messages" for queue, held in kept.items()}
        otherwise = "not approved" if done is None else "it is gone already"
        return {
            "approved": done is not None,
            "approved_by": None if answer is None else answer["responded_by_user"]["name"],
            "deleted": deleted,
            "not_deleted": {queue: why.get(queue, otherwise) for queue in queues if queue not in deleted},
        }

    # [END cleanup_report]

    queues >> approve >> delete
    report(queues, delete.output)
