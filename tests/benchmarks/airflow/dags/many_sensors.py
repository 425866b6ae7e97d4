"""Sensors that start in the triggerer, without a worker: a DAG with one, and a DAG with five hundred.

They are mapped, because Airflow sends the serialized DAG to the triggerer with each trigger that starts there, and the
triggerer parses it each time: with unmapped tasks, that would be 500 DAGs of 500 tasks.
"""

from __future__ import annotations

from airflow.sdk import DAG
from airflow.triggers.base import StartTriggerArgs

from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor

CONN_ID = "contoso_pair"
ENTITIES = ["flights"]
INTERVAL = 3.0


class WaitingSensor(ServiceBusPrimaryHealthSensor):
    """The sensor in its state after a failed first ping."""

    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(
        trigger_cls="servicebus_pair.triggers.primary_health.PrimaryHealthTrigger",
        trigger_kwargs={"servicebus_pair_conn_id": CONN_ID, "entities": ENTITIES, "interval": INTERVAL},
        next_method="resume",
    )


for name, count in {"one_sensor": 1, "many_sensors": 500}.items():
    with DAG(name, schedule=None, max_active_tasks=1):
        WaitingSensor.partial(
            task_id="wait", servicebus_pair_conn_id=CONN_ID, entities=ENTITIES, deferrable=True
        ).expand(poke_interval=[INTERVAL] * count)
