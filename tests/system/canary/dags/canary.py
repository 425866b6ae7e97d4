"""Tasks with rejected and with valid credentials, and tasks that print secrets."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, chain, task

from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor

CARELESS = "careless:"
REFUSED = ["key", "official", "signature", "secret"]
LEDGER = str(Path(os.environ["SERVICEBUS_PAIR_HOME"]) / "ledger")


@task
def careless(conn_id: str) -> None:
    """Print and raise everything that could contain a secret."""
    hook = ServiceBusPairHook(conn_id)
    settings = hook.get_settings()
    pair = hook.get_connection(conn_id)
    namespace = hook.get_connection(pair.extra_dejson["primary_conn_id"])
    for each in (pair, namespace):
        print(CARELESS, each, each.extra, each.schema, each.password, each.get_uri())  # noqa: T201  on purpose
    fields = f"{namespace.extra} {namespace.schema} {namespace.password} {namespace.get_uri()}"
    raise RuntimeError(f"{CARELESS} {settings} {fields}")


with DAG("canary_refused", schedule=None, tags=["servicebus_pair"]):
    for kind in REFUSED:
        ServiceBusPairSendOperator(
            task_id=f"send_{kind}",
            servicebus_pair_conn_id=f"{kind}_pair",
            entity="flights",
            messages=["a"],
            timeout=9,
            ledger=LEDGER,
        )
        ServiceBusPrimaryHealthSensor(
            task_id=f"wait_{kind}",
            servicebus_pair_conn_id=f"{kind}_pair",
            entities=["flights"],
            deferrable=True,
            timeout=5,
        )
        careless.override(task_id=f"careless_{kind}")(f"{kind}_pair")
    for kind in ("key", "secret"):
        ServiceBusPairProvisionOperator(task_id=f"provision_{kind}", servicebus_pair_conn_id=f"{kind}_swapped")
        ServiceBusBacklogSensor(
            task_id=f"backlog_{kind}", servicebus_pair_conn_id=f"{kind}_swapped", deferrable=True, timeout=5
        )
    ServiceBusPairSendOperator(
        task_id="send_broken", servicebus_pair_conn_id="broken_pair", entity="flights", messages=["a"]
    )

with DAG("canary_good", schedule=None, tags=["servicebus_pair"]):
    chain(
        ServiceBusPairProvisionOperator(task_id="provision", servicebus_pair_conn_id="stored_pair"),
        ServiceBusPairSendOperator(
            task_id="send", servicebus_pair_conn_id="stored_pair", entity="flights", messages=["a", "b"], ledger=LEDGER
        ),
        ServiceBusPairSyphonOperator(
            task_id="drain",
            servicebus_pair_conn_id="stored_pair",
            entities=["flights"],
            deferrable=True,
            poll_interval=1,
            ledger=LEDGER,
            retries=1,
            retry_delay=timedelta(seconds=1),
        ),
    )
