"""Ways to receive in a DAG: a run for each batch of messages, an operator, and a function that handles messages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, Param, task

from servicebus_pair.operators.entities import ServiceBusEntityCreateOperator
from servicebus_pair.operators.receive import ServiceBusReceiveOperator
from servicebus_pair.sensors.message import ServiceBusMessageSensor
from servicebus_pair.triggers.receive import ServiceBusReceiveTrigger

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()

DOCS = """
### Ways to receive

At least once: a message is completed when its event or its result is stored, or its function has returned. While the
primary is down, all of them wait.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_HOME` | environment | folder for results that are too large for an XCom |
| trigger form | | the queue or subscription |
"""

# [START receive_watcher]
briefings = Asset(
    "briefings",
    watchers=[
        AssetWatcher(
            name="briefings",
            trigger=ServiceBusReceiveTrigger(
                servicebus_pair_conn_id=CONN_ID, entity="briefings", max_messages=50, linger=timedelta(seconds=2)
            ),
        )
    ],
)

with DAG("servicebus_pair_on_message", schedule=[briefings], catchup=False, tags=["servicebus_pair", "example"]):

    @task
    def handle(triggering_asset_events: Any = None) -> int:
        """Handle the messages of the events that started this run."""
        events = triggering_asset_events[briefings]
        return sum(len(event.extra["payload"]["messages"]) for event in events)

    handle()
# [END receive_watcher]

with DAG(
    "servicebus_pair_receives",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    params={"queue": Param("flights", type="string", minLength=1, title="Queue or topic/Subscriptions/name")},
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START receive_operator]
    received = ServiceBusReceiveOperator(
        task_id="received",
        servicebus_pair_conn_id=CONN_ID,
        entity="{{ params.queue }}",
        max_messages=100,
        max_wait=timedelta(seconds=30),
        folder=HOME / "received",
        deferrable=True,
    )
    # [END receive_operator]

    # [START receive_decorator]
    @task.servicebus_receive(
        servicebus_pair_conn_id=CONN_ID, entity="{{ params.queue }}", max_wait=timedelta(seconds=5), deferrable=False
    )
    def handle_each(messages: Sequence[dict[str, Any]] = ()) -> int:
        """Handle messages, which are completed when this returns and come again when it raises."""
        return len(messages)

    # [END receive_decorator]

    # [START receive_sensor]
    dead_letters = ServiceBusMessageSensor(
        task_id="dead_letters",
        servicebus_pair_conn_id=CONN_ID,
        entity="{{ params.queue }}",
        dead_letter=True,
        poke_interval=timedelta(seconds=2),
        timeout=timedelta(seconds=2),
        soft_fail=True,
        deferrable=False,
    )
    # [END receive_sensor]

    # [START create_entity]
    entity = ServiceBusEntityCreateOperator(
        task_id="entity",
        servicebus_pair_conn_id=CONN_ID,
        entity="{{ params.queue }}",
        settings={"lock_duration": "PT1M", "max_delivery_count": 10},
        if_exists="skip",
    )
    # [END create_entity]

    entity >> received >> handle_each() >> dead_letters
