"""Operators that create, change and delete entities of either namespace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.sdk.administration.data_plane import sdk_client
from servicebus_pair.operators.entities import (
    ServiceBusEntityCreateOperator,
    ServiceBusEntityDeleteOperator,
    ServiceBusEntityUpdateOperator,
)
from tests.airflow.conftest import CONN_ID, LogOfFailure, Pair, RunDag, run_task
from tests.airflow.support.queues import endpoint_of

RULE = "delays/Subscriptions/late/Rules/united"


def create(entity: str, **parameters: Any) -> ServiceBusEntityCreateOperator:
    parameters = {"task_id": "create", "servicebus_pair_conn_id": CONN_ID, **parameters}
    return ServiceBusEntityCreateOperator(entity=entity, **parameters)


def update(entity: str, **parameters: Any) -> ServiceBusEntityUpdateOperator:
    parameters = {"task_id": "update", "servicebus_pair_conn_id": CONN_ID, **parameters}
    return ServiceBusEntityUpdateOperator(entity=entity, **parameters)


def delete(entity: str, **parameters: Any) -> ServiceBusEntityDeleteOperator:
    parameters = {"task_id": "delete", "servicebus_pair_conn_id": CONN_ID, **parameters}
    return ServiceBusEntityDeleteOperator(entity=entity, **parameters)


def test_every_kind_of_entity_is_created_changed_and_deleted(pair: Pair, run_dag: RunDag):
    sql = {"sql": "carrier = 'UA'", "action": "SET late = true"}
    done = run_task(
        run_dag,
        lambda: create("parts/1", task_id="queue", namespace="secondary", settings={"lock_duration": "PT30S"}),
        lambda: create("delays", task_id="topic", kind="topic"),
        lambda: create("delays/Subscriptions/late", task_id="subscription", settings={"max_delivery_count": 3}),
        lambda: create(RULE, task_id="rule", settings=sql),
        lambda: create(RULE, task_id="again", settings={"sql": "carrier = 'AA'"}, if_exists="update"),
        lambda: create("delays", task_id="same", kind="topic"),
        lambda: update("delays/Subscriptions/late", settings={"max_delivery_count": 7}),
    )
    assert {task: result["done"] for task, result in done.items()} == {
        **dict.fromkeys(("queue", "topic", "subscription", "rule"), "created"),
        "again": "updated",
        "same": "existed",
        "update": "updated",
    }
    assert done["rule"]["kind"] == "rule"
    assert done["queue"]["namespace"] == "contoso-dr"

    async def described() -> tuple[Any, ...]:
        async with sdk_client(endpoint_of(pair.primary["contoso"])) as client:
            subscription = await client.get_subscription("delays", "late")
            rule: Any = await client.get_rule("delays", "late", "united")
            return subscription.max_delivery_count, rule.filter.sql_expression, rule.action.sql_expression

    assert asyncio.run(described()) == (7, "carrier = 'AA'", "SET late = true")

    done = run_task(
        run_dag,
        lambda: delete(RULE, task_id="rule"),
        lambda: delete("delays/Subscriptions/late", task_id="subscription"),
        lambda: delete("delays", task_id="topic", kind="topic"),
        lambda: delete("parts/1", task_id="queue", namespace="secondary"),
        lambda: delete("parts/1", task_id="gone", namespace="secondary"),
    )
    assert [result["done"] for result in done.values()].count("deleted") == 4
    assert done["gone"]["done"] == "missing"


@pytest.mark.usefixtures("pair")
def test_what_is_there_or_missing_fails_where_that_was_asked_for(log_of_failure: LogOfFailure):
    assert "EntityExistsError: create queue flights" in log_of_failure(lambda: create("flights", if_exists="fail"))
    assert "EntityNotFoundError: delete queue gone" in log_of_failure(lambda: delete("gone", if_missing="fail"))
    assert "EntityNotFoundError" in log_of_failure(lambda: update("gone", settings={"max_delivery_count": 7}))
    wrong = {"lock": "PT30S"}
    assert "settings has lock: a queue has authorization_rules" in log_of_failure(lambda: create("new", settings=wrong))


@pytest.mark.parametrize(
    ("name", "value"),
    [("entity", ""), ("kind", "table"), ("namespace", "third"), ("settings", "x"), ("if_exists", "replace")],
)
def test_invalid_parameters_are_refused(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=name):
        create(**{"entity": "flights", name: value})
