"""Operators with the connection of the tests."""

from __future__ import annotations

from typing import Any

from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.cost import ServiceBusPairCostOperator
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from tests.airflow.conftest import CONN_ID

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


def backlog_sensor(**parameters: Any) -> ServiceBusBacklogSensor:
    return ServiceBusBacklogSensor(
        **{"task_id": "backlog", "servicebus_pair_conn_id": CONN_ID, "poke_interval": 1, **parameters}
    )


def provision(**parameters: Any) -> ServiceBusPairProvisionOperator:
    return ServiceBusPairProvisionOperator(**{"task_id": "provision", "servicebus_pair_conn_id": CONN_ID, **parameters})


def send(**parameters: Any) -> ServiceBusPairSendOperator:
    """Send two messages to ``flights``, unless ``parameters`` say otherwise."""
    defaults = {} if {"json_lines", "path"} & set(parameters) else {"messages": MESSAGES}
    return ServiceBusPairSendOperator(
        **{"task_id": "send", "servicebus_pair_conn_id": CONN_ID, "entity": "flights", **defaults, **parameters}
    )


def drain(**parameters: Any) -> ServiceBusPairSyphonOperator:
    return ServiceBusPairSyphonOperator(task_id="drain", servicebus_pair_conn_id=CONN_ID, **parameters)


def fail_over(**parameters: Any) -> ServiceBusPairFailoverOperator:
    return ServiceBusPairFailoverOperator(
        task_id="fail_over",
        servicebus_pair_conn_id=CONN_ID,
        **{"entities": "flights", "reason": "maintenance", **parameters},
    )


def fail_back(**parameters: Any) -> ServiceBusPairFailbackOperator:
    return ServiceBusPairFailbackOperator(
        task_id="fail_back",
        servicebus_pair_conn_id=CONN_ID,
        **{"entities": ["Flights"], "reason": "it is over", **parameters},
    )


def drill(**parameters: Any) -> ServiceBusPairDrillOperator:
    return ServiceBusPairDrillOperator(task_id="drill", servicebus_pair_conn_id=CONN_ID, entity="flights", **parameters)


def cleanup(**parameters: Any) -> ServiceBusPairCleanupOperator:
    return ServiceBusPairCleanupOperator(task_id="cleanup", servicebus_pair_conn_id=CONN_ID, **parameters)


def cost(**parameters: Any) -> ServiceBusPairCostOperator:
    return ServiceBusPairCostOperator(task_id="cost", servicebus_pair_conn_id=CONN_ID, **parameters)
