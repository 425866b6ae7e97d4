"""What all triggers of deferred operators have in common."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from servicebus_pair.airflow_runtime.waiting.deferral import DeferralTrigger
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.triggers.backlog import BacklogTrigger
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event
from servicebus_pair.triggers.syphon_control import SyphonControlTrigger
from tests.airflow.conftest import CONN_ID, KEY, UNREACHABLE, define_connection

BACKLOG: dict[str, Any] = {"until": "filled", "messages": 2, "age": 60.0, "interval": 5}


class ImmediateTrigger(DeferralTrigger):
    async def event_payload(self) -> dict[str, Any]:
        return {"found": 1}


async def test_the_trigger_fires_after_three_seconds_and_returns_carry():
    """The scheduler fails a task that resumes before its deferral is noticed."""
    started = time.monotonic()

    event = await anext(ImmediateTrigger(servicebus_pair_conn_id=CONN_ID, carry={"moved": 2}).run())

    assert time.monotonic() - started >= 3
    assert event.payload == {"found": 1, "carry": {"moved": 2}}


@pytest.mark.parametrize(
    "trigger",
    [
        BacklogLevelTrigger(servicebus_pair_conn_id="wrong", **BACKLOG),
        PrimaryHealthTrigger(servicebus_pair_conn_id="wrong", entities=["flights"], interval=1),
    ],
    ids=["backlog", "primary"],
)
async def test_an_invalid_connection_fires_an_error_without_the_secret(
    monkeypatch: pytest.MonkeyPatch, trigger: DeferralTrigger
):
    define_connection(monkeypatch, {**UNREACHABLE, "failover_interval": 10_000}, conn_id="wrong")

    event = await anext(trigger.run())

    with pytest.raises(ConfigurationError, match="connection wrong: setting failover_interval is 10000: it") as raised:
        check_event(event.payload)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "trigger",
    [
        BacklogLevelTrigger(servicebus_pair_conn_id=CONN_ID, **BACKLOG, carry={"moved": 1}),
        PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights"], interval=5, carry={"moved": 1}),
        SyphonControlTrigger(servicebus_pair_conn_id=CONN_ID, carry={"moved": 1}),
        BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=3.0),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_the_trigger_is_recreated_from_what_it_serializes(trigger: BaseTrigger):
    """Airflow identifies a watcher by these arguments, so they must not change from parse to parse."""
    path, arguments = trigger.serialize()

    assert path == f"{type(trigger).__module__}.{type(trigger).__name__}"
    assert arguments.get("carry") == getattr(trigger, "carry", None)
    assert type(trigger)(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)
