"""A secret as a parameter of a task or a trigger is refused: Airflow stores these, for all who may read the DAG."""

from __future__ import annotations

from typing import Any

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.cost import ServiceBusPairCostOperator
from servicebus_pair.operators.failover import ServiceBusPairFailoverOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.message_available import MessageAvailableTrigger
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger
from servicebus_pair.triggers.syphon_control import SyphonControlTrigger
from tests.security.canaries import CANARIES, disclosed, outcome

TASK: dict[str, Any] = {"task_id": "t", "servicebus_pair_conn_id": "contoso"}
LEVEL: dict[str, Any] = {"until": "drained", "messages": 0, "age": None, "interval": 10}
CONN_ID = "servicebus_pair_conn_id"
PARAMETERS: list[tuple[type, dict[str, Any], str]] = [
    (ServiceBusPairSyphonOperator, TASK, "entities"),
    (ServiceBusPairSyphonOperator, TASK, "queues"),
    (ServiceBusPrimaryHealthSensor, TASK, "entities"),
    (ServiceBusPairCleanupOperator, {**TASK, "what": "all"}, "only"),
    (ServiceBusPairCostOperator, TASK, "prices"),
    (ServiceBusPairFailoverOperator, {**TASK, "reason": "test"}, "entities"),
    (PrimaryHealthTrigger, {CONN_ID: "contoso", "interval": 10}, "entities"),
    (PrimaryHealthTrigger, {"entities": ["flights"], "interval": 10}, CONN_ID),
    (MessageAvailableTrigger, {CONN_ID: "contoso"}, "entity"),
    (MessageAvailableTrigger, {CONN_ID: "contoso", "entity": "flights"}, "session_id"),
    (BacklogLevelTrigger, {CONN_ID: "contoso", **LEVEL}, "until"),
    (BacklogLevelTrigger, {CONN_ID: "contoso", **LEVEL}, "spool"),
    (BacklogLevelTrigger, LEVEL, CONN_ID),
    (BacklogTrigger, {}, CONN_ID),
    (SyphonControlTrigger, {}, CONN_ID),
]


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
@pytest.mark.parametrize(("kind", "given", "name"), PARAMETERS, ids=[f"{k.__name__}-{n}" for k, _, n in PARAMETERS])
def test_a_secret_as_a_parameter_is_refused_and_not_shown(kind: type, given: dict[str, Any], name: str, canary: Any):
    with pytest.raises(ConfigurationError):
        kind(**{**given, name: canary})
    assert not disclosed(outcome(lambda: kind(**{**given, name: canary})))
