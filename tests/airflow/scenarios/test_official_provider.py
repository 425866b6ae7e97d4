"""The operators and triggers of the official Azure provider, unmodified, against the embedded Service Bus.

Their connection has the type ``azure_service_bus`` and the namespace's connection string in the field ``schema``.
Messages go unencrypted to its port, because of ``UseDevelopmentEmulator=true``. The SDK's administration client always
speaks https, so ``REQUESTS_CA_BUNDLE`` names the namespace's ``ca_file``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servicebus_emulator import EmulatorProcess
from tests.airflow.conftest import RunDag, run_task
from tests.airflow.support.queues import contents, queue_names

CONNECTION = {"azure_service_bus_conn_id": "asb_contoso"}
QUEUE = {"queue_name": "flights"}

seen: list[str] = []


@pytest.fixture
def contoso(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorProcess]:
    """A namespace, and the environment variables of a connection to it."""
    seen.clear()
    with EmulatorProcess(["contoso"]) as process:
        served = process["contoso"]
        connection = {"conn_type": "azure_service_bus", "schema": served.connection_string}
        monkeypatch.setenv("AIRFLOW_CONN_ASB_CONTOSO", json.dumps(connection))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(served.ca_file))
        yield process


def operator(name: str, task_id: str, **parameters: Any) -> Callable[[], Any]:
    from airflow.providers.microsoft.azure.operators import asb

    return lambda: getattr(asb, f"{name}Operator")(task_id=task_id, **parameters, **CONNECTION)


def create_queue(**parameters: Any) -> Callable[[], Any]:
    return operator("AzureServiceBusCreateQueue", "create", **QUEUE, **parameters)


def send(task_id: str, **parameters: Any) -> Callable[[], Any]:
    return operator("AzureServiceBusSendMessage", task_id, **QUEUE, **parameters)


def receive(task_id: str, **parameters: Any) -> Callable[[], Any]:
    return operator("AzureServiceBusReceiveMessage", task_id, **QUEUE, **parameters)


def record_body(message: Any, context: Any) -> None:
    seen.append(f"{message} in {context['ti'].task_id}")


def test_queue_operators(contoso: EmulatorProcess, run_dag: RunDag):
    run_task(
        run_dag,
        create_queue(max_delivery_count=3),
        send("one", message="a", message_id="m1", reply_to="answers", message_headers={"carrier": "UA"}),
        send("several", message=["b", "c"]),
        send("batch", message=["d", "e"], batch=True),
    )
    sent = contents(contoso["contoso"], "flights")
    assert [message.body for message in sent] == ["a", "b", "c", "d", "e"]
    assert (sent[0].message_id, sent[0].properties) == ("m1", {"carrier": "UA"})

    run_task(
        run_dag,
        receive("logged", max_message_count=1),
        receive("noted", max_message_count=4, message_callback=record_body),
    )
    assert seen == [f"{body} in noted" for body in "bcde"]
    assert contents(contoso["contoso"], "flights") == []

    run_task(run_dag, operator("AzureServiceBusDeleteQueue", "delete", **QUEUE))
    assert queue_names(contoso["contoso"]) == []
