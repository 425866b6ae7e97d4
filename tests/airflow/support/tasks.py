"""Operators with the tests' connection, and the log of a task that must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.cost import ServiceBusPairCostOperator
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator
from servicebus_pair.operators.failover import ServiceBusPairFailoverOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from tests.airflow.conftest import CONN_ID, RunDag, states

__all__ = ["MESSAGES", "cleanup", "cost", "drain", "drill", "fail_over", "log_of_failed_task", "provision", "send"]

MESSAGES: list[Any] = [
    "plain",
    {
        "body": "with everything",
        "message_id": "m-1",
        "session_id": "N1",
        "subject": "late",
        "content_type": "text/plain",
        "correlation_id": "c-1",
        "time_to_live": 3600,
        "application_properties": {"delay": 12, "carrier": "UA"},
    },
]


def provision(**parameters: Any) -> ServiceBusPairProvisionOperator:
    return ServiceBusPairProvisionOperator(task_id="provision", conn_id=CONN_ID, **parameters)


def send(**parameters: Any) -> ServiceBusPairSendOperator:
    """Send two messages to ``flights``, unless ``parameters`` say otherwise."""
    defaults = {} if {"json_lines", "path"} & set(parameters) else {"messages": MESSAGES}
    return ServiceBusPairSendOperator(
        **{"task_id": "send", "conn_id": CONN_ID, "entity": "flights", **defaults, **parameters}
    )


def drain(**parameters: Any) -> ServiceBusPairSyphonOperator:
    return ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID, **parameters)


def fail_over(**parameters: Any) -> ServiceBusPairFailoverOperator:
    return ServiceBusPairFailoverOperator(
        task_id="fail_over", conn_id=CONN_ID, **{"entities": "flights", "reason": "maintenance", **parameters}
    )


def drill(**parameters: Any) -> ServiceBusPairDrillOperator:
    return ServiceBusPairDrillOperator(task_id="drill", conn_id=CONN_ID, entity="flights", **parameters)


def cleanup(**parameters: Any) -> ServiceBusPairCleanupOperator:
    return ServiceBusPairCleanupOperator(task_id="cleanup", conn_id=CONN_ID, **parameters)


def cost(**parameters: Any) -> ServiceBusPairCostOperator:
    return ServiceBusPairCostOperator(task_id="cost", conn_id=CONN_ID, **parameters)


def log_of_failed_task(run_dag: RunDag, capfd: pytest.CaptureFixture[str], make: Callable[[], object]) -> str:
    """Run a DAG of which a task must fail, and return its log."""
    from airflow.sdk import DAG

    with DAG("failing", schedule=None) as dag:
        make()
    assert "failed" in states(run_dag(dag)).values()
    printed = capfd.readouterr()
    return printed.out + printed.err
