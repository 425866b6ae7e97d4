"""Sensors that begin in the triggerer, so that no worker has to start each of them: one alone, and five hundred.

They are mapped. Airflow hands the whole serialized DAG to the triggerer with each trigger that begins there, and the
triggerer reads it anew each time: five hundred tasks of their own would be five hundred DAGs of five hundred tasks.
"""

from __future__ import annotations

from airflow.sdk import DAG
from airflow.triggers.base import StartTriggerArgs

from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor

CONN_ID = "contoso_pair"
ENTITIES = ["flights"]
INTERVAL = 3.0


class WaitingSensor(ServiceBusPrimaryHealthSensor):
    """The sensor as it is once its first ping went unanswered."""

    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(
        trigger_cls="servicebus_pair.triggers.primary_health.PrimaryHealthTrigger",
        trigger_kwargs={"conn_id": CONN_ID, "entities": ENTITIES, "interval": INTERVAL},
        next_method="resume",
    )


for name, count in {"one_sensor": 1, "many_sensors": 500}.items():
    with DAG(name, schedule=None, max_active_tasks=1):
        WaitingSensor.partial(task_id="wait", conn_id=CONN_ID, entities=ENTITIES, deferrable=True).expand(
            poke_interval=[INTERVAL] * count
        )
